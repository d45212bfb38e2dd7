package install

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
)

// Which set an object is of: what its name says, if it is one that was rendered, and else its label.
func TestWhichSetAnObjectIsOf(t *testing.T) {
	for name, x := range map[string]struct {
		object, label string
		set           string
		of            []string // besides
	}{
		"rendered":            {object: fence.PolicyPrefix + "a.istio-leader.lease.work-0123456789", set: "a"},
		"rendered, relabeled": {object: fence.PolicyPrefix + "a.work-0123456789", label: "b", set: "a", of: []string{"b"}},
		"not rendered":        {object: fence.PolicyPrefix + "a.work", label: "b", set: "b"},
		"no digest":           {object: fence.PolicyPrefix + "a.work-0123456789a", label: "b", set: "b"},
		"no set":              {object: fence.PolicyPrefix + "work-0123456789", label: "b", set: "b"},
		"copied":              {object: "mine", label: "b", set: "b"},
		"another's":           {object: "mine"},
	} {
		p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: x.object}}
		if x.label != "" {
			p.Labels = map[string]string{fence.SetLabel: x.label}
		}
		o := object{Object: p, kind: policyKind}
		if got := o.set(); got != x.set {
			t.Errorf("%s: of the set %q", name, got)
		}
		for _, set := range []string{"a", "b"} {
			want := set == x.set
			for _, other := range x.of {
				want = want || set == other
			}
			if o.of(set) != want {
				t.Errorf("%s: of %q is %v", name, set, o.of(set))
			}
		}
	}
	lists := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fence.LocksAnnotation: "lease a/b,configmap c/d"}}}
	if got := (object{Object: lists}).locks(); len(got) != 2 || got[1] != "configmap c/d" {
		t.Errorf("locks %q", got)
	}
	if got := (object{Object: &admissionv1.ValidatingAdmissionPolicy{}}).locks(); got != nil {
		t.Errorf("no annotation, and the locks %q", got)
	}
}
