package install

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"incumbent.dev/incumbent/internal/fence"
)

func TestApply_Unchanged(t *testing.T) {
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

func TestApply_RevertsChanges(t *testing.T) {
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

func TestApply_KeepsForeignMetadata(t *testing.T) {
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
			t.Errorf("for an account without permissions: %v", err)
		}
	})
}

func TestApply_LockOfAnotherSet(t *testing.T) {
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
			{simple(t, "away", "home/p1"), []string{`already guarded by fence "home"`, "lease home/one", "--replace"}},
			{simple(t, home, "home/p2"), []string{"guarded for home/p1", "service accounts are home/p2", "--replace"}},
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
		// Labels can be removed, so the name contains the set too.
		for _, o := range w.policies.stored {
			o.Labels = nil
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1")); err == nil || !strings.Contains(err.Error(), `already guarded by fence "home"`) {
			t.Errorf("without labels: %v", err)
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1"), Options{Replace: true}); err != nil {
			t.Error(err)
		}
		if i := slices.IndexFunc(w.policies.stored, func(o *admissionv1.ValidatingAdmissionPolicy) bool {
			return strings.HasPrefix(o.Name, fence.PolicyPrefix+home+".")
		}); i >= 0 {
			t.Errorf("%s is left of what was taken over", w.policies.stored[i].Name)
		}
	})
}

func TestApply_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(2), simple(t, home, "home/p1")
		clients := w.clients(none)
		w.servers[1].stalled = true
		_, err := Apply(t.Context(), clients[0], set, Options{Servers: clients[1:]})
		if !errors.Is(err, ErrNotSeen) || !strings.Contains(err.Error(), "API server 2") || !strings.Contains(err.Error(), "it admitted a write that the policy rejects") {
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

func TestApply_ClusterScopedKinds(t *testing.T) {
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
			if refused != (err != nil) || refused && (!strings.Contains(err.Error(), "lease home/one guards "+resource+" by namespace") || !strings.Contains(err.Error(), "names or labels")) {
				t.Errorf("%s: %v", resource, err)
			}
		}
	})
}

func TestApply_OldObjectStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(1), simple(t, home, "home/p1")
		client := w.clients(none)[0]
		if _, err := Apply(t.Context(), client, set); err != nil {
			t.Fatal(err)
		}
		obsolete := set.Work[0].Binding.DeepCopy()
		obsolete.Name = "copied-by-hand"
		if _, err := w.bindings.put(obsolete.Name, "", obsolete); err != nil {
			t.Fatal(err)
		}
		w.bindings.remade = true
		if _, err := Apply(t.Context(), client, set); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "old objects") {
			t.Errorf("%v", err)
		}
	})
}

func TestTarget_ReplacesReadVersion(t *testing.T) {
	p := simple(t, home, "home/p1").Work[0]
	client := newScripted(t, func(string, string) (any, error) { return nil, nil })
	var versions []string
	client.seen = func(verb string, r *http.Request) {
		if verb != "update" {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		sent, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if object, ok := sent.(metav1.Object); err == nil && ok {
			versions = append(versions, object.GetResourceVersion())
		}
	}
	for _, target := range []target{policyOf(t.Context(), client, p), bindingOf(t.Context(), client, p)} {
		if _, err := target.replace("77"); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	if !slices.Equal(versions, []string{"77", "77"}) {
		t.Errorf("sent as of %q", versions)
	}
}

func TestApply_LastResponse(t *testing.T) {
	away := errors.New("the API server is away")
	set, err := fence.Render("sys", guarding(fence.Guard{Resources: []string{"pods"}, Namespaces: []string{"apps"}}))
	if err != nil {
		t.Fatal(err)
	}
	client := newScripted(t, func(string, string) (any, error) { return nil, away })
	if err := scopes(client, set); !errors.Is(err, away) || !strings.Contains(err.Error(), "discover cluster-scoped kinds") {
		t.Errorf("kinds: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		p, _ := fence.Barrier("s", "n", "default")
		objects := map[string]any{bothPolicies: p.Policy, bothBindings: p.Binding}
		client := newScripted(t, func(verb, resource string) (any, error) {
			if verb == "create" && resource == "configmaps" {
				return nil, away
			}
			return objects[resource], nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a minute has many tries
		defer cancel()
		if err := seen(ctx, "s", client, Options{}); !errors.Is(err, away) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("policies: %v", err)
		}
	})
}

func TestApply_CannotRead(t *testing.T) {
	away := errors.New("the API server is away")
	set := simple(t, home, "home/p1")
	for _, resource := range []string{bothPolicies, bothBindings} {
		client := failing(t, "list", resource, away)
		changes, err := Apply(t.Context(), client, set)
		if !errors.Is(err, away) || !strings.Contains(err.Error(), "install fence") || len(changes) > 0 || len(client.writes) > 0 {
			t.Errorf("list %s: %v, %v, %v", resource, err, changes, client.writes)
		}
		if _, err := Remove(t.Context(), client, "s"); !errors.Is(err, away) {
			t.Errorf("list %s, to remove: %v", resource, err)
		}
	}
	client := failing(t, "get", bothPolicies, away)
	if changes, err := Apply(t.Context(), client, set); !errors.Is(err, away) || len(changes) > 0 || len(client.writes) > 0 {
		t.Errorf("get: %v, %v, %v", err, changes, client.writes)
	}
}

func TestApply_RetriesConflicts(t *testing.T) {
	set := simple(t, home, "home/p1")
	gr := schema.GroupResource{Resource: bothPolicies}
	for name, test := range map[string]struct {
		err   error
		tries int
	}{
		"conflict":  {apierrors.NewConflict(gr, "x", errors.New("changed")), mostConflicts},
		"exists":    {apierrors.NewAlreadyExists(gr, "x"), mostConflicts},
		"forbidden": {apierrors.NewForbidden(gr, "x", errors.New("no")), 1},
	} {
		client := failing(t, "patch", bothPolicies, test.err)
		client.seen = func(verb string, r *http.Request) {
			if q := r.URL.Query(); verb == "patch" && (q.Get("fieldManager") != fieldManager || q.Get("force") != "true") {
				t.Errorf("%s: it is applied with %v", name, q)
			}
		}
		if _, err := Apply(t.Context(), client, set); apierrors.ReasonForError(err) != apierrors.ReasonForError(test.err) {
			t.Errorf("%s: %v", name, err)
		}
		if len(client.writes) != test.tries {
			t.Errorf("%s: %v", name, client.writes)
		}
	}
}

func TestTarget_ComparesMetadata(t *testing.T) {
	p := simple(t, home, "home/p1").Work[0]
	client := newScripted(t, func(string, string) (any, error) { return nil, nil })
	target := bindingOf(t.Context(), client, p)
	if !target.exact(p.Binding) {
		t.Error("it is not what it is")
	}
	for what, change := range map[string]func(metav1.Object){
		"label":      func(o metav1.Object) { o.SetLabels(nil) },
		"annotation": func(o metav1.Object) { o.SetAnnotations(nil) },
	} {
		other := p.Binding.DeepCopy()
		change(other)
		if target.exact(other) {
			t.Errorf("without its %ss it counts as the same", what)
		}
	}
	drifted := p.Binding.DeepCopy()
	drifted.Spec.ValidationActions = nil
	if target.exact(drifted) || target.exact(p.Policy) {
		t.Error("another one counts as the same")
	}
}

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
