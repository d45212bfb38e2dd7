package ctl

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/tagging"
)

// fix pastes the first command of doctor into a shell, after which the cause must be gone.
func (e *environment) fix(cause string) {
	e.t.Helper()
	e.expect(e.run("doctor"), unhealthy, "problem   "+cause)
	_, command, _ := strings.Cut(e.raw("", false, "doctor").out, "→ ")
	command, _, _ = strings.Cut(command, "\n")
	e.paste(strings.TrimSpace(command))
	if got := e.run("doctor"); strings.Contains(got.out, cause) {
		e.t.Errorf("after %s:\n%s", command, got.out)
	}
}

// TestDoctor_RightsRevoked gives the service account of the control plane the rights that it lacks.
func TestDoctor_RightsRevoked(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod-stable-1", ""))
	e.running("pilot-1", "stable")
	e.fix("NAMESPACE/istio-leader has no leader: service account NAMESPACE/default has no permission to update configmaps in namespace NAMESPACE")
	e.must(nil, e.kube.RbacV1().Roles(e.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	account, err := e.kube.CoreV1().ServiceAccounts(e.namespace).Get(t.Context(), "default", metav1.GetOptions{})
	e.must(nil, err)
	account.Annotations = map[string]string{"meta.helm.sh/release-name": "stable", "meta.helm.sh/release-namespace": "istio"}
	e.must(e.kube.CoreV1().ServiceAccounts(e.namespace).Update(t.Context(), account, metav1.UpdateOptions{}))
	e.expect(e.run("doctor"), unhealthy, "→ helm upgrade stable deploy/charts/pilot --namespace istio --reset-then-reuse-values\n")
}

// TestDoctor_Webhook excludes a lock from a webhook that rejects its holder.
func TestDoctor_Webhook(t *testing.T) {
	e := newEnvironment(t)
	none := admissionv1.SideEffectClassNone
	fails, url := admissionv1.Ignore, "https://127.0.0.1:1/"
	name := "deny." + e.namespace + ".example.com"
	hooks := e.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	e.must(hooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: name, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fails, ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}},
	}}}, metav1.CreateOptions{}))
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), e.namespace, metav1.DeleteOptions{}) })
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod-stable-1", ""))
	e.memberOf("pilot-1", "stable", "", 0, members.Election{Name: "istio-leader", Candidate: true, Warm: true, Fit: true, Refused: `admission webhook "` + name + `" denied the request: no`})
	_, command, _ := strings.Cut(e.raw("", false, "doctor").out, "→ ")
	command, _, _ = strings.Cut(command, "\n")
	e.paste(command)
	after, err := hooks.Get(t.Context(), e.namespace, metav1.GetOptions{})
	e.must(nil, err)
	if got := after.Webhooks[0].MatchConditions; len(got) != 1 || !strings.Contains(got[0].Expression, `"istio-leader"`) {
		t.Errorf("match conditions %v", got)
	}
}

// TestDoctor_PriorityOfNothing gives renewals a priority level of their own.
func TestDoctor_PriorityOfNothing(t *testing.T) {
	e := newEnvironment(t)
	flow := e.kube.FlowcontrolV1()
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	level.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	level.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: new(int32), LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}
	e.must(flow.PriorityLevelConfigurations().Create(t.Context(), level, metav1.CreateOptions{}))
	schema := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	schema.Spec.PriorityLevelConfiguration.Name, schema.Spec.MatchingPrecedence = e.namespace, 10
	schema.Spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects:      []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: e.namespace, Name: "*"}}},
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}}},
	}}
	e.must(flow.FlowSchemas().Create(t.Context(), schema, metav1.CreateOptions{}))
	e.lock("istio-leader", current(ourRecord), marker, ourMarker)
	e.running("pilot-1", "stable")
	e.fix("NAMESPACE/istio-leader can lose the leader: renewals of service account NAMESPACE/default have FlowSchema NAMESPACE, whose priority level NAMESPACE has no share of the API server's concurrency")
	e.expect(e.run("doctor"), Done, "renewals of service account NAMESPACE/default have FlowSchema renewals-NAMESPACE-default, priority level leader-election")
}

// TestDoctor_NoReplicas scales a Deployment of the control plane.
func TestDoctor_NoReplicas(t *testing.T) {
	e := newEnvironment(t)
	labels := map[string]string{"app": "pilot", tagging.Label: "stable"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "pilot-stable"}}
	d.Spec.Replicas, d.Spec.Selector, d.Spec.Template.Labels = new(int32), &metav1.LabelSelector{MatchLabels: labels}, labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "pilot", Image: "pilot"}}
	e.must(e.kube.AppsV1().Deployments(e.namespace).Create(t.Context(), d, metav1.CreateOptions{}))
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod-stable-1", ""))
	e.expect(e.run("list"), Done, "free, see explain", "Problem: NAMESPACE/istio-leader has no leader: Deployment pilot-stable has 0 replicas\n  Start its pods.\n  → kubectl -n NAMESPACE scale")
	e.fix("NAMESPACE/istio-leader has no leader: Deployment pilot-stable has 0 replicas")
}

// TestDoctor_MembersBlocked excludes locks and member Leases from a webhook that rejects both.
func TestDoctor_MembersBlocked(t *testing.T) {
	e := newEnvironment(t)
	e.lock("istio-leader", strings.ReplaceAll(record, "istiod-stable-1", ""))
	e.member("pilot-1", "stable", "", time.Hour, true, true)
	none, url := admissionv1.SideEffectClassNone, "https://127.0.0.1:1/"
	hooks := e.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	e.must(hooks.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "deny." + e.namespace + ".example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
		}},
	}}}, metav1.CreateOptions{}))
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), e.namespace, metav1.DeleteOptions{}) })
	e.fix("NAMESPACE/istio-leader has no leader: no candidate can renew its member Lease, and webhook deny.NAMESPACE.example.com of ValidatingWebhookConfiguration NAMESPACE must admit each write of leases")
}
