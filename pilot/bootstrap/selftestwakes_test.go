package bootstrap

import (
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/tests/cluster"
)

const policies = "validatingadmissionpolicies"

// blind makes configurations of replicas that may not watch a fence's policies: what other
// tests do with theirs does not have them look either.
func (e *environment) blind(t *testing.T) func(pod string, every time.Duration) Config {
	t.Helper()
	common := e.config(t, "unused")
	rules := slices.DeleteFunc(manifests.ClusterRules(rights()), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, policies) })
	config := func(pod string, every time.Duration) Config {
		c := common
		c.Identity, c.Fence, c.fenceEvery = pod, true, every
		c.RESTConfig = e.cluster.Identity(t, cluster.IdentityOptions{
			Namespace: e.home, PodName: pod, ServiceAccount: "pilot", Rules: e.rules(), ClusterRules: rules,
		})
		return c
	}
	config("unused-too", 0)
	await(t, "the right is gone", func() bool {
		answer, err := e.admin.Kube().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + e.home + ":pilot",
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "watch", Group: "admissionregistration.k8s.io", Resource: policies,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !answer.Status.Allowed
	})
	return config
}

// What a fence's self-test goes by where it may not watch the policies: its ticker, and terms
// that begin or end.
func TestSelfTestLooksByItsTickerAndAtTerms(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.blind(t)
	rows := func() []election { return newController().fenced(e) }
	remove := e.putFence(t, rows())
	a := start(t, config("a", time.Hour), rows())
	a.leads(t)
	seldom, often := start(t, config("seldom", time.Hour), rows()), start(t, config("often", 50*time.Millisecond), rows())
	for _, r := range []*replica{seldom, often} {
		await(t, "the follower's write is refused", func() bool { return r.stands(t) == "1" && r.checks(t, "refused", "following") != "" })
		await(t, "it says that it cannot watch", func() bool {
			return r.lines.Count("permission is missing", `verb="watch ValidatingAdmissionPolicy"`) > 0
		})
	}

	remove()
	await(t, "the one that looks often notices that it fell", func() bool { return often.stands(t) == "0" })
	e.putFence(t, rows())
	await(t, "the one that looks often notices that it stands again", func() bool { return often.stands(t) == "1" })

	if err := often.end(); err != nil {
		t.Error(err)
	}
	if n := seldom.checks(t, "admitted", "leading"); n != "" {
		t.Errorf("who has not led has tried it %s times as a leader", n)
	}
	if err := a.end(); err != nil {
		t.Error(err)
	}
	await(t, "the other looks when its term begins", func() bool { return seldom.checks(t, "admitted", "leading") != "" })

	before := seldom.checks(t, "refused", "following")
	e.breakRecord(t)
	await(t, "it looks when its term has ended", func() bool {
		return seldom.checks(t, "refused", "following") != before
	})
}
