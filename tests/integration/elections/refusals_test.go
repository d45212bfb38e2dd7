package elections

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhook has a webhook refuse each change of a Lease in the stage's namespace with that code;
// 0: it is registered and not there.
func (s *stage) webhook(t *testing.T, code int32) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionapi.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionapi.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: code, Message: "not on Fridays"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	if code == 0 {
		server.Close()
	}
	hooks := s.cluster.Client(t).Kube().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	name, none := "deny-"+s.namespace, admissionv1.SideEffectClassNone
	_, err := hooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "deny.test.incumbent.dev", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"leases"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the server: nobody is to wait for it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
		defer cancel()
		if err := hooks.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// terminate deletes the namespace: nothing can be made in it any more. There is no controller
// that would empty it.
func (s *stage) terminate(t *testing.T) {
	t.Helper()
	if err := s.cluster.Client(t).Kube().CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// quota leaves no room for a Lease that is not there yet. There is no controller that would
// count, so that the test says what is used.
func (s *stage) quota(t *testing.T) {
	t.Helper()
	quotas := s.cluster.Client(t).Kube().CoreV1().ResourceQuotas(s.namespace)
	none := corev1.ResourceList{"count/leases.coordination.k8s.io": resource.MustParse("0")}
	made, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}, metav1.CreateOptions{})
	if err == nil {
		made.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
		_, err = quotas.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes until the store has no space left.
func (s *stage) fill(t *testing.T) {
	t.Helper()
	maps, text := s.cluster.Client(t).Kube().CoreV1().ConfigMaps(s.namespace), strings.Repeat("x", 1<<20-1<<10)
	for n := range 64 {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", n)}, Data: map[string]string{"x": text},
		}, metav1.CreateOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "space exceeded") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the store takes everything")
}
