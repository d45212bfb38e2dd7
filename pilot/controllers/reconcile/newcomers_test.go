package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestNewcomers(t *testing.T) {
	space := func(revision string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{revisionLabel: revision}}}
	}
	client := fake.NewClientset(space("new"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	n := NewNewcomers(client)
	o := func(uid string, labels map[string]string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: "n", Name: "o", UID: types.UID(uid), Labels: labels}
	}
	n.Know(o("old", nil))
	for _, test := range []struct {
		step   string
		o      *metav1.ObjectMeta
		cached string
		want   bool
		reads  int
	}{
		{"known", o("old", nil), "stale", true, 0},
		{"own label", o("1", map[string]string{revisionLabel: "x"}), "stale", true, 0},
		{"stale namespace", o("1", nil), "stale", false, 1},
		{"still stale", o("1", nil), "stale", false, 2},
		{"current namespace", o("1", nil), "new", true, 3},
		{"confirmed", o("1", nil), "stale", true, 3},
		{"created again", o("2", nil), "stale", false, 4},
	} {
		got, err := n.Confirm(t.Context(), test.o, space(test.cached))
		if err != nil || got != test.want || len(client.Actions()) != test.reads {
			t.Errorf("%s: %v, %v, %d reads, want %v, %d reads", test.step, got, err, len(client.Actions()), test.want, test.reads)
		}
	}
	if got, err := n.Confirm(t.Context(), o("2", nil), nil); got || err != nil {
		t.Errorf("namespace is not cached: %v, %v", got, err)
	}
	n.Know(o("1", nil))
	n.Forget("n", "o")
	if got, err := n.Confirm(t.Context(), o("1", nil), space("stale")); got || err != nil {
		t.Errorf("forgotten: %v, %v", got, err)
	}
	client.PrependReactor("list", "namespaces", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errForbidden })
	if got, err := n.Confirm(t.Context(), o("1", nil), space("stale")); got || err == nil {
		t.Errorf("without answer: %v, %v", got, err)
	}
}
