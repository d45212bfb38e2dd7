package install

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
)

// calm is a world with API servers that take in all that they are asked about.
func calm(servers int) *world {
	w := newWorld(rand.New(rand.NewPCG(1, 1)), servers)
	w.lazy = 0
	return w
}

func simple(t *testing.T, set string, accounts ...string) fence.Set {
	t.Helper()
	rendered, err := fence.Render(set, fence.Declaration{
		Election: elections[0], Namespace: home, Lock: fence.Lease, ServiceAccounts: accounts,
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// Installing what stands changes nothing, and says so of each object.
func TestInstallingAgainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(1), simple(t, home, "home/p1")
		client := w.clients(none)[0]
		first, err := Apply(t.Context(), client, set)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Apply(t.Context(), client, set)
		if err != nil || len(first) != len(again) || len(first) != 2*len(set.All()) {
			t.Errorf("%v: %v and %v", err, first, again)
		}
		for i := range again {
			if first[i].Verb != "applied" || again[i].Verb != "unchanged" {
				t.Errorf("%v and %v", first[i], again[i])
			}
		}
		if got := len(w.policies.stored); got != len(set.All()) {
			t.Errorf("%d policies are there, of %d: a barrier was left behind", got, len(set.All()))
		}
	})
}

// What others have changed of ours is taken back: what they took away by applying, what they added by
// replacing.
func TestWhatOthersChangedIsTakenBack(t *testing.T) {
	for name, change := range map[string]func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding){
		"a rule that leaves all out": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = append(p.Spec.MatchConstraints.ExcludeResourceRules, p.Spec.MatchConstraints.ResourceRules...)
		},
		"a label": func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			delete(p.Labels, fence.SetLabel)
			delete(b.Labels, fence.SetLabel)
		},
		"an annotation": func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Annotations[fence.LocksAnnotation] = "none"
			b.Annotations[fence.LocksAnnotation] = "none"
		},
		"what narrows a binding down": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		},
		"an action": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, set := calm(1), simple(t, home, "home/p1")
				client := w.clients(none)[0]
				if _, err := Apply(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
				work := set.Work[0].Name()
				p, b := w.policies.stored[w.policies.index(work)].DeepCopy(), w.bindings.stored[w.bindings.index(work)].DeepCopy()
				change(p, b)
				p.ManagedFields, b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "another"}}, []metav1.ManagedFieldsEntry{{Manager: "another"}}
				if _, err := w.policies.put(work, "", p); err != nil {
					t.Fatal(err)
				}
				if _, err := w.bindings.put(work, "", b); err != nil {
					t.Fatal(err)
				}
				found, err := differs(t.Context(), client, set.Work[0])
				if err != nil || len(found) == 0 {
					t.Errorf("differs: %v, %v", found, err)
				}
				if _, err := Apply(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
				for _, p := range set.All() {
					if found, err := differs(t.Context(), client, p); err != nil || len(found) > 0 {
						t.Errorf("%s: %v, %v", p.Name(), found, err)
					}
				}
			})
		})
	}
}

// Labels and annotations that others have put there are left alone; without the accounts that a policy was for,
// the set may have others.
func TestWhatOthersAddedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1)
		client, set := w.clients(none)[0], simple(t, home, "home/p1")
		if _, err := Apply(t.Context(), client, set); err != nil {
			t.Fatal(err)
		}
		for _, p := range w.policies.stored {
			p.Labels["team"] = "mesh"
		}
		for _, b := range w.bindings.stored {
			b.Labels["team"] = "mesh"
		}
		changes, err := Apply(t.Context(), client, set)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Verb != "unchanged" {
				t.Errorf("%v", c)
			}
		}
		for _, p := range w.policies.stored {
			delete(p.Annotations, fence.AccountsAnnotation)
		}
		for _, b := range w.bindings.stored {
			delete(b.Annotations, fence.AccountsAnnotation)
		}
		if _, err := Apply(t.Context(), client, simple(t, home, "home/p2")); err != nil {
			t.Errorf("for other accounts than nobody: %v", err)
		}
	})
}

// A lock belongs to one set, and to accounts of which some stay; who takes it over says so.
func TestWhoseALockIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1)
		client := w.clients(none)[0]
		if _, err := Apply(t.Context(), client, simple(t, home, "home/p1")); err != nil {
			t.Fatal(err)
		}
		before := len(w.policies.events) + len(w.bindings.events)
		for _, c := range []struct {
			set  fence.Set
			want []string
		}{
			{simple(t, "away", "home/p1"), []string{`fence "home" already`, "lease home/one", "--take-over"}},
			{simple(t, home, "home/p2"), []string{"guarded for home/p1", "home/p2 has none", "--take-over"}},
		} {
			_, err := Apply(t.Context(), client, c.set)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		}
		if after := len(w.policies.events) + len(w.bindings.events); after != before {
			t.Errorf("%d objects were changed all the same", after-before)
		}
		// Labels can be taken away: the name says the set as well.
		for _, o := range w.policies.stored {
			o.Labels = nil
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1")); err == nil || !strings.Contains(err.Error(), `fence "home" already`) {
			t.Errorf("without labels: %v", err)
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1"), Options{TakeOver: true}); err != nil {
			t.Error(err)
		}
		if i := slices.IndexFunc(w.policies.stored, func(o *admissionv1.ValidatingAdmissionPolicy) bool {
			return strings.HasPrefix(o.Name, fence.PolicyPrefix+home+".")
		}); i >= 0 {
			t.Errorf("%s is left of what was taken over", w.policies.stored[i].Name)
		}
	})
}

// An API server that never acts on policies, and an installer that is interrupted: both are told, and by
// which object or server.
func TestWhyAnInstallationFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(2), simple(t, home, "home/p1")
		clients := w.clients(none)
		w.servers[1].stalled = true
		_, err := Apply(t.Context(), clients[0], set, Options{Servers: clients[1:]})
		if !errors.Is(err, ErrNotSeen) || !strings.Contains(err.Error(), "API server 2") || !strings.Contains(err.Error(), "it admitted what the policy refuses") {
			t.Errorf("stalled: %v", err)
		}
		w.servers[1].stalled = false
		for writes := range 2 * len(set.All()) {
			w := calm(1)
			w.left = writes
			_, err := Apply(t.Context(), w.clients(none)[0], set)
			name := slices.Concat(set.Permanent, set.Locks, set.Work)[0].Name()
			if !errors.Is(err, errInterrupted) || writes == 0 && !strings.Contains(err.Error(), policyKind+" "+name) || writes == 1 && !strings.Contains(err.Error(), bindingKind+" "+name) {
				t.Errorf("after %d writes: %v", writes, err)
			}
		}
		if _, err := Remove(t.Context(), clients[0], ""); err == nil {
			t.Error("a set without a name was removed")
		}
	})
}

// A removal says so until it is whole: when it was interrupted anywhere, and when an API server does
// not notice. What somebody else removes meanwhile is no error, and what has the set's label alone goes as well.
func TestWhatARemovalSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := simple(t, home, "home/p1")
		standing := func(servers int) *world {
			w := calm(servers)
			if _, err := Apply(t.Context(), w.clients(none)[0], set); err != nil {
				t.Fatal(err)
			}
			w.settle()
			return w
		}
		for writes := 0; ; writes++ {
			w := standing(1)
			w.left = writes
			changes, err := Remove(t.Context(), w.clients(none)[0], home)
			if w.interrupted {
				if !errors.Is(err, errInterrupted) || !strings.Contains(err.Error(), `the fence "home"`) || writes == 1 && (len(changes) != 1 || !strings.Contains(err.Error(), "removing the fence")) {
					t.Errorf("after %d writes: %v, %v", writes, changes, err)
				}
				continue
			}
			if err != nil || len(w.policies.stored) != len(set.Permanent) || len(changes) != 2*len(set.Locks)+2*len(set.Work) {
				t.Errorf("whole: %v, %v, and %d policies are left", changes, err, len(w.policies.stored))
			}
			// A policy that goes first leaves a binding that refers to nothing, of which an API server that is asked in between
			// may judge that it cannot be evaluated.
			policies := slices.IndexFunc(changes, func(c Change) bool { return c.Kind == policyKind })
			if slices.ContainsFunc(changes[policies:], func(c Change) bool { return c.Kind == bindingKind }) {
				t.Errorf("policies go before bindings: %v", changes)
			}
			break
		}
		w := standing(1)
		w.bindings.remade = true
		if changes, err := Remove(t.Context(), w.clients(none)[0], home); !apierrors.IsConflict(err) || len(changes) > 0 || len(w.bindings.stored) < 2 {
			t.Errorf("what was made anew meanwhile goes, too: %v, %v", changes, err)
		}
		w = standing(1)
		w.servers[0].stalled = true
		if _, err := Remove(t.Context(), w.clients(none)[0], home); !errors.Is(err, ErrNotSeen) || !strings.Contains(err.Error(), "is removed") {
			t.Errorf("stalled: %v", err)
		}
		w = standing(1)
		w.policies.raced, w.bindings.raced = true, true
		other := set.Work[0].Policy.DeepCopy()
		other.Name = "copied-by-hand"
		if _, err := w.policies.put(other.Name, "", other); err != nil {
			t.Fatal(err)
		}
		if _, err := Remove(t.Context(), w.clients(none)[0], home); err != nil || len(w.policies.stored) != len(set.Permanent) {
			t.Errorf("raced: %v, and %d policies are left", err, len(w.policies.stored))
		}
	})
}

// Kinds that lie in no namespace are known by discovery, with all that is below them.
func TestScopesOfCustomKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for resource, refused := range map[string]bool{"buoys": false, "beacons": true, "beacons/status": true, "beacons/*": true, "krakens": false} {
			set, err := fence.Render(home, fence.Declaration{
				Election: elections[0], Namespace: home, Lock: fence.Lease, ServiceAccounts: []string{"home/p1"},
				Guards: []fence.Guard{{Group: "c.example", Resources: []string{resource}, Namespaces: []string{work}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = Apply(t.Context(), calm(1).clients(none)[0], set)
			if refused != (err != nil) || refused && (!strings.Contains(err.Error(), "lease home/one guards "+resource+" by namespaces") || !strings.Contains(err.Error(), "names or labels")) {
				t.Errorf("%s: %v", resource, err)
			}
		}
	})
}

// A report counts what is the same, and tells subresources from their objects.
func TestReportCounts(t *testing.T) {
	const refused = `{"stage":"ResponseComplete","verb":"%s","objectRef":{"resource":"deployments","subresource":"%s","namespace":"ns","name":"x"},"user":{"username":"u"},` +
		`"responseStatus":{"message":"ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'y' denied request: not the leader"}}` + "\n"
	var log strings.Builder
	for _, sub := range []string{"", "scale", "scale"} {
		fmt.Fprintf(&log, refused, "update", sub)
	}
	found, err := Report(strings.NewReader(log.String()))
	if err != nil || len(found) != 2 {
		t.Fatalf("%v, %v", found, err)
	}
	text := fmt.Sprint(found)
	for _, want := range []string{"deployments ns/x", "deployments/scale ns/x"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
}
