package elections

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// reject installs a policy with this CEL expression for writes of Leases. It returns a function that removes the policy.
func (x *fixture) reject(expression, message string) (remove func()) {
	x.Helper()
	client := x.cluster.Client(x).Kube().AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "deny-" + x.namespace}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: x.selector(), ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: leaseWrites}},
			},
			Validations: []admissionv1.Validation{{Expression: expression, Message: message}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := client.ValidatingAdmissionPolicies().Create(x.Context(), policy, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(x.Context(), binding, metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
	remove = func() {
		ctx := context.WithoutCancel(x.Context())
		if err := client.ValidatingAdmissionPolicyBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			x.Error(err)
		}
		if err := client.ValidatingAdmissionPolicies().Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			x.Error(err)
		}
	}
	x.Cleanup(remove)
	return remove
}

// asHolder is the CEL expression that rejects Leases that pod b writes as holder.
const asHolder = `object.spec.?holderIdentity.orValue("") != "b" || !("authentication.kubernetes.io/pod-name" in request.userInfo.extra) ` +
	`|| request.userInfo.extra["authentication.kubernetes.io/pod-name"][0] != "b"`

// A challenger that cannot acquire the lock costs the leader at most one term. It leads soon after it may acquire the lock.
func TestChallenger_CannotAcquire(t *testing.T) {
	t.Parallel()
	for _, lock := range []leaderelection.LockType{leaderelection.LockTypeLease, leaderelection.LockTypeMulti} {
		t.Run(lock.String(), func(t *testing.T) {
			t.Parallel()
			x := newFixture(t, lock)
			x.setDefault("stable")
			allow := x.reject(asHolder, "account is not declared")
			a := x.ranked("a", "stable", short).start(t)
			eventually(t, "a leads", a.Live)
			b := x.ranked("b", "canary", short)
			eventually(t, "the policy is in effect", func() bool {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("b")}}
				_, err := b.client.Kube().CoordinationV1().Leases(x.namespace).Create(t.Context(), lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
			})
			b.start(t)
			x.setDefault("canary")
			eventually(t, "b logs why it requests no handover", func() bool { return b.log.Count("dry run of an acquisition") > 0 })
			eventually(t, "a leads again", a.Live)
			if n := len(a.Spans()); n != 2 || b.Live() {
				t.Errorf("a led %d terms, want 2; b leads: %v", n, b.Live())
			}
			allow()
			eventually(t, "b leads", b.Live)
			if n := len(a.Spans()); n != 2 {
				t.Errorf("a led %d terms, want 2", n)
			}
		})
	}
}
