package fence_test

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// What no policy sees can be guarded by none, whichever such kind it is.
func TestKindsThatNoPolicySees(t *testing.T) {
	for group, resources := range map[string][]string{
		"admissionregistration.k8s.io": {"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},
		"authentication.k8s.io":        {"selfsubjectreviews", "tokenreviews"},
		"authorization.k8s.io":         {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
	} {
		for _, resource := range resources {
			d := good()
			d.Guards = []fence.Guard{{Group: group, Resources: []string{resource}, Names: []string{"x"}}}
			if err := d.Validate(); err == nil || !strings.Contains(err.Error(), "leave it to RBAC") {
				t.Errorf("%s of %q: %v", resource, group, err)
			}
		}
	}
}

// Labels narrow down what has labels: objects, and those of their subresources that are judged by them.
func TestLabelsOfSubresources(t *testing.T) {
	for resource, accepted := range map[string]bool{
		"pods": true, "pods/status": true, "pods/ephemeralcontainers": true, "pods/resize": true, "namespaces/finalize": true,
		"certificatesigningrequests/approval": true, "deployments/scale": false, "pods/eviction": false, "pods/binding": false, "pods/*": false,
	} {
		d := good()
		d.Guards = []fence.Guard{{Resources: []string{resource}, Labels: map[string]string{"a": "b"}}}
		err := d.Validate()
		if (err == nil) != accepted || err != nil && !strings.Contains(err.Error(), "put it into a guard of its own") {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

// A guard with namespaces and labels is narrowed down by both.
func TestAGuardIsNarrowedDownByBoth(t *testing.T) {
	d := good()
	d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Namespaces: []string{"a"}, Labels: map[string]string{"b": "c"}}}
	set, err := fence.Render("s", d)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.Work {
		within := p.Binding.Spec.MatchResources
		if within == nil || len(within.NamespaceSelector.MatchExpressions) != 1 || within.ObjectSelector.MatchLabels["b"] != "c" {
			t.Errorf("%s is narrowed down by %+v", p.Name(), within)
		}
	}
}

// What tries whether policies are in use is the very object that its policy refuses, where it is to be tried.
func TestABarrierIsTriedWhereItStands(t *testing.T) {
	p, object := fence.Barrier("set", "nonce", "somewhere")
	rule := p.Policy.Spec.MatchConstraints.ResourceRules[0]
	if object.Namespace != "somewhere" || len(rule.ResourceNames) != 1 || rule.ResourceNames[0] != object.Name || !strings.HasSuffix(object.Name, "nonce") {
		t.Errorf("%s/%s, and the rule is %+v", object.Namespace, object.Name, rule)
	}
	if p.Policy.Labels[fence.SetLabel] != "set" {
		t.Errorf("it is of the set %q", p.Policy.Labels[fence.SetLabel])
	}
}

// Of many locks that share a policy a refusal names some, and how many more there are, if there are any.
func TestHowManyLocksARefusalNames(t *testing.T) {
	for n, want := range map[int]string{1: "istio-system/e1 is", 3: "istio-system/e3 is", 4: " and 1 more is", 6: " and 3 more is"} {
		var all []fence.Declaration
		for i := range n {
			d := good()
			d.Election = "e" + string(rune('1'+i))
			d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"x" + d.Election}}}
			all = append(all, d)
		}
		set, err := fence.Render("s", all...)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range set.Work {
			message := p.Policy.Spec.Validations[0].Message
			if strings.HasSuffix(message, "is deleted by name") {
				found = true
				if !strings.Contains(message, want+" deleted by name") || strings.Contains(message, "more") != (n > 3) {
					t.Errorf("of %d: %q", n, message)
				}
			}
		}
		if !found {
			t.Errorf("of %d: no policy of collections", n)
		}
	}
}

// A coordinator without a name would be everyone whose request has none.
func TestACoordinatorHasAName(t *testing.T) {
	d := fence.Declaration{
		Election: "e", Namespace: "n", Lock: fence.Lease, ServiceAccounts: []string{"n/b", "n/a"},
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	}
	set, err := fence.Render("s", d)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.Work {
		if got := p.Policy.Annotations[fence.AccountsAnnotation]; got != "n/a,n/b" {
			t.Errorf("%s is for %q, in no order", p.Name(), got)
		}
	}
	d.Coordinators = []string{""}
	if _, err := fence.Render("s", d); err == nil || !strings.Contains(err.Error(), `coordinator ""`) {
		t.Errorf("one without a name: %v", err)
	}
}
