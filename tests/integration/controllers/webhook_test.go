package controllers

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

const revLabel = "istio.io/rev"

// put creates or updates a webhook configuration. The test that creates it deletes it at its end.
func put(t *testing.T, c kube.Client, name string, labels map[string]string) {
	t.Helper()
	hooks := c.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	wanted := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := hooks.Create(t.Context(), wanted, metav1.CreateOptions{})
	switch {
	case err == nil:
		t.Cleanup(func() { _ = hooks.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	case apierrors.IsAlreadyExists(err):
		wanted, err = hooks.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			wanted.Labels = labels
			_, err = hooks.Update(t.Context(), wanted, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rev(revision string) map[string]string { return map[string]string{revLabel: revision} }
