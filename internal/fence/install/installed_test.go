package install

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

func TestRemove(t *testing.T) {
	for writes, whole := 0, false; !whole; writes++ {
		inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set) {
			w.settle()
			w.left = writes
			changes, err := Remove(t.Context(), client, home)
			if w.interrupted {
				if !errors.Is(err, errInterrupted) || !strings.Contains(err.Error(), `fence "home"`) || writes == 1 && (len(changes) != 1 || !strings.Contains(err.Error(), "remove fence")) {
					t.Errorf("after %d writes: %v, %v", writes, changes, err)
				}
				return
			}
			whole = true
			if err != nil || len(stored(t, w.Kube())) != 2*len(set.Permanent) || len(changes) != 2*len(set.Locks)+2*len(set.Work) {
				t.Errorf("%v, %v, and %v are left", changes, err, stored(t, w.Kube()))
			}
			// Without its policy, an API server may fail to evaluate a binding.
			policies := slices.IndexFunc(changes, func(c Change) bool { return c.Kind == policyKind })
			if policies < 0 || slices.ContainsFunc(changes[policies:], func(c Change) bool { return c.Kind == bindingKind }) {
				t.Errorf("a policy is removed before a binding: %v", changes)
			}
		})
	}
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, _ fence.Set) {
		w.before = w.recreate
		if changes, err := Remove(t.Context(), client, home); !apierrors.IsConflict(err) || len(changes) > 0 || len(stored(t, client)) < 4 {
			t.Errorf("a recreated object is deleted too: %v, %v", changes, err)
		}
	})
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, _ fence.Set) {
		w.settle()
		w.servers[0].stalled = true
		if _, err := Remove(t.Context(), client, home); !errors.Is(err, ErrNotSeen) || !strings.Contains(err.Error(), "is removed") {
			t.Errorf("stalled: %v", err)
		}
	})
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set) {
		w.before = func(r apiserver.Request) { w.Delete(r.Resource, "", r.Name) }
		copied := set.Work[0].Policy.DeepCopy()
		copied.Name = "copied-by-hand"
		w.Put(copied)
		if _, err := Remove(t.Context(), client, home); err != nil || len(stored(t, w.Kube())) != 2*len(set.Permanent) {
			t.Errorf("raced: %v, and %v are left", err, stored(t, w.Kube()))
		}
	})
	if _, err := Remove(t.Context(), nil, ""); err == nil {
		t.Error("a set without a name was removed")
	}
}

func TestConflicts(t *testing.T) {
	declared := func(election, account string) fence.Declaration {
		return fence.Declaration{
			Election: election, Namespace: home, Lock: record.Lease, ServiceAccounts: []string{account},
			Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{election}}},
		}
	}
	installing := func(name string, declarations ...fence.Declaration) (set fence.Set, all inventory) {
		set = render(t, name, declarations...)
		for _, p := range set.All() {
			all = append(all, object{storable: p.Policy}, object{storable: p.Binding})
		}
		return set, all
	}
	set, installed := installing(home, declared("one", "home/p1"), declared("two", "home/p2"))
	if err := installed.conflicts(set); err != nil {
		t.Errorf("a set conflicts with itself: %v", err)
	}
	_, others := installing("another", declared("one", "home/p1"))
	err := others.conflicts(set)
	if err == nil || strings.Count(err.Error(), `already guarded by fence "another"`) != strings.Count(err.Error(), "\n")+1 {
		t.Fatalf("%v", err)
	}
	lines := slices.Collect(strings.Lines(err.Error() + "\n"))
	if slices.Sort(lines); len(slices.Compact(slices.Clone(lines))) != len(lines) {
		t.Errorf("a conflict is reported twice: %v", err)
	}
}

func TestScopes(t *testing.T) {
	guarded := func(guard fence.Guard) fence.Set {
		return render(t, home, fence.Declaration{
			Election: elections[0], Namespace: home, Lock: record.Lease, ServiceAccounts: []string{"home/p1"}, Guards: []fence.Guard{guard},
		})
	}
	byNamespace := func(group, resource string) fence.Set {
		return guarded(fence.Guard{Group: group, Resources: []string{resource}, Namespaces: []string{work}})
	}
	synctest.Test(t, func(t *testing.T) {
		client := calm(1).clients()[0]
		for kind, refused := range map[string]bool{
			"/secrets": false, "/islands": true, "c.example/buoys": false, "c.example/krakens": false,
			"c.example/beacons": true, "c.example/beacons/status": true, "c.example/beacons/*": true,
		} {
			group, resource, _ := strings.Cut(kind, "/")
			_, err := Apply(t.Context(), client, byNamespace(group, resource), Options{Replace: true})
			if refused != (err != nil) || refused && (!strings.Contains(err.Error(), "lease home/one guards "+resource+" by namespace") || !strings.Contains(err.Error(), "names or labels")) {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
	if err := scopes(clientOf(t, stubbed(away)).Kube(), byNamespace("", "pods")); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "discover cluster-scoped kinds") {
		t.Errorf("without discovery: %v", err)
	}
	byLabel := guarded(fence.Guard{Group: "x.y", Resources: []string{"widgets"}, Labels: map[string]string{"a": "b"}})
	byLabel.Work = slices.DeleteFunc(byLabel.Work, func(p fence.Pair) bool { return p.Policy.Spec.MatchConstraints.ResourceRules[0].APIGroups[0] != "x.y" })
	if err := scopes(nil, byLabel); err != nil { // without a request
		t.Errorf("by label: %v", err)
	}
}

func TestObject_Set(t *testing.T) {
	for name, x := range map[string]struct {
		object, label string
		set           string
	}{
		"rendered":            {object: fence.PolicyPrefix + "a.istio-leader.lease.work-0123456789", set: "a"},
		"rendered, relabeled": {object: fence.PolicyPrefix + "a.work-0123456789", label: "b", set: "a"},
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
		o := object{storable: p}
		if got := o.set(); got != x.set {
			t.Errorf("%s: of the set %q", name, got)
		}
	}
}
