package elections

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

// withVerbs returns a client configuration with a token of a new Pod. All candidates may do with locks only these verbs.
func (x *fixture) withVerbs(pod string, verbs ...string) *rest.Config {
	x.Helper()
	return x.cluster.Identity(x, cluster.IdentityOptions{
		Namespace: x.namespace, PodName: pod, ServiceAccount: "pilot", Rules: lockRules(nil, verbs...),
	})
}

// The elector recognizes why an API server rejects writes. Package k8sleaderelection tests what follows.
func TestWriteRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse func(t *testing.T, x *fixture)
		log    string
		start  bool // the write that creates the lock is refused, not a renewal
	}{
		"permission missing":   {func(_ *testing.T, x *fixture) { x.withVerbs("unused", "get", "watch") }, "permission for the lock is missing", false},
		"policy":               {refuseByPolicy, "admission policy denies the change of the lock", false},
		"webhook denies":       {refuseByWebhook(http.StatusForbidden), "admission webhook denies the change of the lock", false},
		"webhook is busy":      {refuseByWebhook(http.StatusTooManyRequests), "admission webhook denies the change of the lock", false},
		"webhook unreachable":  {refuseByWebhook(0), "admission webhook for the lock does not respond", false},
		"namespace terminates": {terminateNamespace, "namespace of the lock is being deleted", true},
		"quota":                {refuseByQuota, "quota does not allow the lock", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t, leaderelection.LockTypeLease)
			a := x.candidate("a", "stable")
			if !test.start {
				a.start(t)
				harness.Until(t, "a leads", a.Live)
			}
			test.refuse(t, x)
			if test.start {
				a.start(t)
			}
			harness.Until(t, "the cause is logged", func() bool { return a.log.Count(test.log) > 0 })
		})
	}
}

// leaseWrites are the requests that an admission policy or webhook refuses.
var leaseWrites = admissionv1.RuleWithOperations{
	Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
	Rule:       admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"leases"}},
}

func (x *fixture) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: x.namespace}}
}

// refuseByWebhook registers a webhook that refuses writes of Leases with the code. If the code is 0, no server runs.
func refuseByWebhook(code int32) func(t *testing.T, x *fixture) {
	return func(t *testing.T, x *fixture) {
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
		hooks := x.cluster.Client(t).Kube().AdmissionregistrationV1().ValidatingWebhookConfigurations()
		hook := &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "deny-" + x.namespace},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "deny.test.incumbent.dev", SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionv1.WebhookClientConfig{
					URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				},
				NamespaceSelector: x.selector(), Rules: []admissionv1.RuleWithOperations{leaseWrites},
			}},
		}
		if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := hooks.Delete(context.WithoutCancel(t.Context()), hook.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// terminateNamespace deletes the namespace. It stays, because no controller empties it.
func terminateNamespace(t *testing.T, x *fixture) {
	harness.Must(t, x.cluster.Client(t).Kube().CoreV1().Namespaces().Delete(t.Context(), x.namespace, metav1.DeleteOptions{}))
}

// refuseByQuota allows no Lease. The test writes the status of the quota, because no controller does.
func refuseByQuota(t *testing.T, x *fixture) {
	quotas := x.cluster.Client(t).Kube().CoreV1().ResourceQuotas(x.namespace)
	none := corev1.ResourceList{"count/leases.coordination.k8s.io": resource.MustParse("0")}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if _, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	leases := x.cluster.Client(t).Kube().CoordinationV1().Leases(x.namespace)
	harness.Until(t, "the quota is in effect", func() bool {
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
}

// refuseByPolicy installs a policy that refuses writes of Leases.
func refuseByPolicy(t *testing.T, x *fixture) {
	client := x.cluster.Client(t).Kube().AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "deny-" + x.namespace}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: x.selector(), ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: leaseWrites}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "not on Fridays"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that the candidate can release its lock
		if err := client.ValidatingAdmissionPolicyBindings().Delete(context.WithoutCancel(t.Context()), meta.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
