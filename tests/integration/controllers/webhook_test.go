package controllers

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

const revLabel = "istio.io/rev"

// put creates or updates a webhook configuration. It is deleted when the test ends.
func put(t *testing.T, c kube.Client, name string, labels map[string]string) {
	t.Helper()
	hooks := c.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	wanted := admissionv1.MutatingWebhookConfiguration(name).WithLabels(labels)
	if _, err := hooks.Apply(t.Context(), wanted, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
}

func rev(revision string) map[string]string { return map[string]string{revLabel: revision} }
