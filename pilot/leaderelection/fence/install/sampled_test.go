package install

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

// An API server that fails at one thing: what an installation makes of that. That policies do what
// they should is tried on a real one.
func failing(verb, resource string, with error) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, with })
	return client
}

// writes are what changes something.
func writesTo(client *fake.Clientset) (all []string) {
	for _, a := range client.Actions() {
		if verb := a.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			all = append(all, verb+" "+a.GetResource().Resource)
		}
	}
	return all
}

const bothPolicies, bothBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"

// What cannot be read is not written over: an installation ends with the reason, and has changed nothing.
func TestAnInstallationThatCannotRead(t *testing.T) {
	away := errors.New("the API server is away")
	set := simple(t, home, "home/p1")
	for _, resource := range []string{bothPolicies, bothBindings} {
		client := failing("list", resource, away)
		changes, err := Apply(t.Context(), client, set)
		if !errors.Is(err, away) || !strings.Contains(err.Error(), "installing the fence") || len(changes) > 0 || len(writesTo(client)) > 0 {
			t.Errorf("list %s: %v, %v, %v", resource, err, changes, writesTo(client))
		}
		if _, err := Remove(t.Context(), client, "s"); !errors.Is(err, away) {
			t.Errorf("list %s, to remove: %v", resource, err)
		}
	}
	client := failing("get", bothPolicies, away)
	if changes, err := Apply(t.Context(), client, set); !errors.Is(err, away) || len(changes) > 0 || len(writesTo(client)) > 0 {
		t.Errorf("get: %v, %v, %v", err, changes, writesTo(client))
	}
}

// An object that others change as well is tried again so often and no more, and any other refusal is
// not tried again.
func TestAnObjectThatIsRefused(t *testing.T) {
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
		client := failing("patch", bothPolicies, test.err)
		if _, err := Apply(t.Context(), client, set); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
		if got := writesTo(client); len(got) != test.tries {
			t.Errorf("%s: %v", name, got)
		}
		for _, a := range client.Actions() {
			if patch, ok := a.(clienttesting.PatchActionImpl); ok && (patch.PatchOptions.FieldManager != FieldManager || patch.PatchOptions.Force == nil || !*patch.PatchOptions.Force) {
				t.Errorf("%s: it is applied with %+v", name, patch.PatchOptions)
			}
		}
	}
}

// Where the barrier cannot be put up, or may not be tried, nobody waits for it.
func TestABarrierThatCannotBeTried(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no"))
	for name, test := range map[string]struct {
		verb, resource, words string
	}{
		"it cannot be put up": {"get", bothPolicies, ""},
		"it may not be tried": {"create", "configmaps", "whether API server 1 acts on the policies cannot be tried"},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := failing(test.verb, test.resource, forbidden)
			p, _ := fence.Barrier("s", "n", "default") // what is applied is another one: it is replaced
			replaced := 0
			for resource, object := range map[string]runtime.Object{bothPolicies: p.Policy, bothBindings: p.Binding} {
				client.PrependReactor("patch", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, object, nil })
				client.PrependReactor("update", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
					if update := a.(clienttesting.UpdateActionImpl); update.UpdateOptions.FieldManager != FieldManager {
						t.Errorf("%s: %s are replaced with %+v", name, resource, update.UpdateOptions)
					}
					replaced++
					return true, object, nil
				})
			}
			began := time.Now()
			err := seen(t.Context(), "s", client, Options{})
			if !errors.Is(err, forbidden) || !strings.Contains(err.Error(), test.words) || time.Since(began) > 0 {
				t.Errorf("%s: after %v: %v", name, time.Since(began), err)
			}
			if tried := test.verb == "create"; tried != (replaced == 2) {
				t.Errorf("%s: %d were replaced", name, replaced)
			}
		})
	}
}

// Whose a lock is already is said once, however many objects say so.
func TestAConflictIsSaidOnce(t *testing.T) {
	set, others := simple(t, home, "home/p1"), simple(t, "another", "home/p1")
	var all inventory
	for _, p := range others.All() {
		all = append(all, object{p.Policy, policyKind}, object{p.Binding, bindingKind})
	}
	err := all.conflicts(set, false)
	if err == nil || strings.Count(err.Error(), `guarded by the fence "another" already`) != strings.Count(err.Error(), "\n")+1 {
		t.Fatalf("%v", err)
	}
	said := map[string]bool{}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); said[line] {
			t.Errorf("%q is said twice", line)
		}
		said[line] = true
	}
	if err := all.conflicts(set, true); err != nil {
		t.Errorf("to take over: %v", err)
	}
}

// A kind without namespaces may be guarded by labels, and nobody asks which kinds there are for that.
func TestLabelsNeedNoNamespaces(t *testing.T) {
	set, err := fence.Render(home, fence.Declaration{
		Election: elections[0], Namespace: home, Lock: fence.Lease, ServiceAccounts: []string{"home/p1"},
		Guards: []fence.Guard{{Group: "x.y", Resources: []string{"widgets"}, Labels: map[string]string{"a": "b"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "x.y/v1", APIResources: []metav1.APIResource{{Name: "widgets"}}}}
	if err := scopes(client, fence.Set{Name: home, Work: onlyWidgets(set)}); err != nil {
		t.Error(err)
	}
	if n := len(client.Actions()); n > 0 {
		t.Errorf("asked %d times", n)
	}
}

func onlyWidgets(set fence.Set) (all []fence.Pair) {
	for _, p := range set.Work {
		if p.Policy.Spec.MatchConstraints.ResourceRules[0].APIGroups[0] == "x.y" {
			all = append(all, p)
		}
	}
	return all
}

// A label that is missing on a binding alone is missed, too.
func TestABindingsLabelCounts(t *testing.T) {
	p := simple(t, home, "home/p1").Work[0]
	client := fake.NewClientset()
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

// What a verification cannot look at is unclear, with the reason; it does not hold.
func TestWhatAVerificationMayNotRead(t *testing.T) {
	unable := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}}
	d := guarding(configMap())
	for want, change := range map[string]func(*judging){
		"unclear  service account sys/pilot is there": func(j *judging) { j.objects["/api/v1/namespaces/sys/serviceaccounts/pilot"] = unable },
	} {
		j, set := fenced(t, d)
		change(j)
		if lines := verified(t, j, set, d); !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("no %q in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// A watch that cannot begin is said, whichever of the two kinds it is of and whether reading or watching fails.
func TestAWatchThatCannotBegin(t *testing.T) {
	away := errors.New("the API server is away")
	for _, verb := range []string{"list", "watch"} {
		for resource, kind := range map[string]string{bothPolicies: policyKind, bothBindings: bindingKind} {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				fails := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away }
				if verb == "list" {
					client.PrependReactor("list", resource, fails)
				} else {
					client.PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, away })
				}
				ctx, cancel := context.WithCancel(t.Context())
				said, ended := []string{}, make(chan struct{})
				go func() {
					defer close(ended)
					Watch(ctx, client, func() {}, func(err error) { said = append(said, err.Error()) })
				}()
				synctest.Wait()
				cancel()
				<-ended
				if len(said) != 1 || said[0] != "watching "+kind+": "+away.Error() {
					t.Errorf("%s %s: it says %q", verb, resource, said)
				}
			})
		}
	}
}

// An object to try a guard with is looked for; that this failed is said.
func TestAnExampleThatCannotBeLookedFor(t *testing.T) {
	away := errors.New("the API server is away")
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{maps: "ConfigMapList"})
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away })
	found, err := kind{maps, true}.example(t.Context(), client, fence.Probe{Guard: configMap()})
	if found != nil || !errors.Is(err, away) || !strings.HasPrefix(err.Error(), "looking for an object to try it with: ") {
		t.Errorf("%v, %v", found, err)
	}
}
