package install

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

const bothPolicies, bothBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"

func TestApply_Unchanged(t *testing.T) {
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set) {
		for _, o := range stored(t, client) {
			o.GetLabels()["team"] = "mesh"
			w.Put(o)
		}
		changes, err := Apply(t.Context(), client, set)
		if err != nil || len(changes) != 2*len(set.All()) {
			t.Errorf("%v: %v", err, changes)
		}
		for _, c := range changes {
			if c.Verb != "unchanged" {
				t.Errorf("%v", c)
			}
		}
		if got := len(stored(t, client)); got != 2*len(set.All()) {
			t.Errorf("%d objects exist, want %d: a barrier was not removed", got, 2*len(set.All()))
		}
	})
}

func TestApply_RevertsChanges(t *testing.T) {
	for name, change := range map[string]func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding){
		"an exclude rule": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ExcludeResourceRules = append(p.Spec.MatchConstraints.ExcludeResourceRules, p.Spec.MatchConstraints.ResourceRules...)
		},
		"a label": func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			delete(p.Labels, fence.SetLabel)
			delete(b.Labels, fence.SetLabel)
		},
		"an annotation": func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Annotations[fence.DeclarationsAnnotation] = "none"
			b.Annotations[fence.DeclarationsAnnotation] = "none"
		},
		"a selector of a binding": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		},
		"an action": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set) {
				p, b := set.Work[0].Policy.DeepCopy(), set.Work[0].Binding.DeepCopy()
				change(p, b)
				w.Put(p)
				w.Put(b)
				found, err := differs(t.Context(), client, set.Work[0])
				if err != nil || len(found) == 0 {
					t.Errorf("differs: %v, %v", found, err)
				}
				if _, err := Apply(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
				if found, err := differs(t.Context(), client, set.Work[0]); err != nil || len(found) > 0 {
					t.Errorf("differs after Apply: %v, %v", found, err)
				}
			})
		})
	}
}

func TestApply_LockOfAnotherSet(t *testing.T) {
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, _ fence.Set) {
		before := w.Version()
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
		if after := w.Version(); after != before {
			t.Errorf("%d objects were changed all the same", after-before)
		}
		// Labels can be removed, so the name contains the set too.
		for _, o := range stored(t, client) {
			o.SetLabels(nil)
			w.Put(o)
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1")); err == nil || !strings.Contains(err.Error(), `already guarded by fence "home"`) {
			t.Errorf("without labels: %v", err)
		}
		if _, err := Apply(t.Context(), client, simple(t, "away", "home/p1"), Options{Replace: true}); err != nil {
			t.Error(err)
		}
		for _, o := range stored(t, client) {
			if strings.HasPrefix(o.GetName(), fence.PolicyPrefix+home+".") {
				t.Errorf("%s was not replaced", o.GetName())
			}
		}
	})
}

func TestApply_Errors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(2), simple(t, home, "home/p1")
		clients := w.clients()
		w.servers[1].stalled = true
		_, err := Apply(t.Context(), clients[0], set, Options{Servers: clients[1:]})
		if !errors.Is(err, ErrNotSeen) || !strings.Contains(err.Error(), "API server 2") || !strings.Contains(err.Error(), "it admitted a write that the policy rejects") {
			t.Errorf("stalled: %v", err)
		}
		w.servers[1].stalled = false
		for writes := range 2 * len(set.All()) {
			w := calm(1)
			w.left = writes
			_, err := Apply(t.Context(), w.clients()[0], set)
			name := slices.Concat(set.Permanent, set.Locks, set.Work)[0].Name()
			if !errors.Is(err, errInterrupted) || writes == 0 && !strings.Contains(err.Error(), policyKind+" "+name) || writes == 1 && !strings.Contains(err.Error(), bindingKind+" "+name) {
				t.Errorf("after %d writes: %v", writes, err)
			}
		}
	})
}

func TestApply_OldObjectStays(t *testing.T) {
	inCluster(t, func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set) {
		obsolete := set.Work[0].Binding.DeepCopy()
		obsolete.Name = "copied-by-hand"
		w.Put(obsolete)
		w.before = w.recreate
		if _, err := Apply(t.Context(), client, set); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "old objects") {
			t.Errorf("%v", err)
		}
	})
}

func TestSeen_Errors(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no"))
	for name, x := range map[string]struct {
		verb, resource string
		err            error
		want           string
		took           time.Duration
	}{
		"policy forbidden": {"get", bothPolicies, forbidden, "forbidden", 0},
		"write forbidden":  {"create", "configmaps", forbidden, "check whether API server 1 enforces the policies", 0},
		"write fails":      {"create", "configmaps", errAway, "last response: ", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			client := failing(t, x.verb, x.resource, x.err)
			began := time.Now()
			err := seen(ctx, "s", client, Options{})
			if err == nil || !strings.Contains(err.Error(), x.err.Error()) || !strings.Contains(err.Error(), x.want) || time.Since(began) != x.took || errors.Is(err, context.DeadlineExceeded) != (x.took > 0) {
				t.Errorf("%s: after %v: %v", name, time.Since(began), err)
			}
		})
	}
}

// inCluster runs f in a cluster with a set that was just installed.
func inCluster(t *testing.T, f func(t *testing.T, w *world, client kubernetes.Interface, set fence.Set)) {
	synctest.Test(t, func(t *testing.T) {
		w, set := calm(1), simple(t, home, "home/p1")
		client := w.clients()[0]
		changes, err := Apply(t.Context(), client, set)
		if err != nil || slices.ContainsFunc(changes, func(c Change) bool { return c.Verb != "applied" }) {
			t.Fatalf("%v, %v", err, changes)
		}
		f(t, w, client, set)
	})
}

// stored returns all policies and bindings.
func stored(t *testing.T, client kubernetes.Interface) (all []storable) {
	t.Helper()
	for _, s := range bindingsFirst(client) {
		some, _, err := s.list(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		all = append(all, some...)
	}
	return all
}

// recreate recreates the object of a request, as another client does.
func (w *world) recreate(r apiserver.Request) {
	var o unstructured.Unstructured
	if w.Get(r.Resource, "", r.Name, &o.Object) {
		o.SetUID("another")
		w.Put(&o)
	}
}

// failing returns a client of an API server without objects that fails at one kind of request.
func failing(t *testing.T, verb, resource string, with error) kubernetes.Interface {
	t.Helper()
	return clientOf(t, stubbed(func(r apiserver.Request) apiserver.Fault {
		if r.Verb == verb && r.Resource == resource {
			return apiserver.Fault{Err: with}
		}
		return apiserver.Fault{}
	})).Kube()
}

// calm returns a cluster that loads all objects.
func calm(servers int) *world {
	w := newWorld(rand.New(rand.NewPCG(1, 1)), servers)
	w.lazy = 0
	return w
}

func simple(t *testing.T, set string, accounts ...string) fence.Set {
	t.Helper()
	return render(t, set, fence.Declaration{
		Election: elections[0], Namespace: home, Lock: record.Lease, ServiceAccounts: accounts,
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"x"}}},
	})
}

func render(t *testing.T, name string, declarations ...fence.Declaration) fence.Set {
	t.Helper()
	set, err := fence.Render(name, declarations...)
	harness.Must(t, err)
	return set
}
