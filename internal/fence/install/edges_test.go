package install

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"incumbent.dev/incumbent/internal/fence"
)

// What stands in the way of a search for an example is said.
func TestAnExampleThatCannotBeLookedFor(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	j.lists["/api/v1/namespaces/apps/configmaps?metadata.name=x"] = byRBAC(attempt{})
	want := "unclear  lease sys/e guards configmaps for sys/pilot: a pod that does not lead is refused: looking for an object to try it with: " + byRBAC(attempt{}).Error()
	if lines := verified(t, j, set, d); len(lines) != 2 || !slices.Contains(lines, want) || len(j.attempts) > 0 {
		t.Errorf("%v\n%s", j.attempts, strings.Join(lines, "\n"))
	}
}

// Of several refusals the first is quoted. A verification leaves no connection behind.
func TestWhatAVerificationLeaves(t *testing.T) {
	d := guarding(configMap())
	j, set := fenced(t, d)
	j.answers = func(a attempt) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "y", errors.New("ValidatingAdmissionPolicy '"+fence.PolicyPrefix+"s.work-1' denied request: "+a.verb))
	}
	lines := verified(t, j, set, d)
	if !strings.HasPrefix(lines[1], "holds") || !strings.HasSuffix(lines[1], "denied request: create") {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return j.open.Load() == 0, nil })
	if err != nil {
		t.Errorf("%d connections are open", j.open.Load())
	}
}

// Each lock has accounts of its own: those of another are none of its.
func TestAccountsOfSeveralLocks(t *testing.T) {
	declared := func(election, account string) fence.Declaration {
		return fence.Declaration{
			Election: election, Namespace: home, Lock: fence.Lease, ServiceAccounts: []string{account},
			Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{election}}},
		}
	}
	set, err := fence.Render(home, declared("one", "home/p1"), declared("two", "home/p2"))
	if err != nil {
		t.Fatal(err)
	}
	var all inventory
	for _, p := range set.All() {
		all = append(all, object{p.Policy, policyKind}, object{p.Binding, bindingKind})
	}
	if err := all.conflicts(set); err != nil {
		t.Errorf("a set conflicts with itself: %v", err)
	}
}

// Kinds of the core, too, may lie in no namespace.
func TestScopesOfTheCoresKinds(t *testing.T) {
	j := newJudging(t)
	j.serves("v1", "/api/v1", "pods", "-beacons")
	client, err := kubernetes.NewForConfig(j.config())
	if err != nil {
		t.Fatal(err)
	}
	for resource, refused := range map[string]bool{"pods": false, "beacons": true} {
		d := guarding(fence.Guard{Resources: []string{resource}, Namespaces: []string{"apps"}})
		set, err := fence.Render("sys", d)
		if err != nil {
			t.Fatal(err)
		}
		if err := scopes(client, set); (err != nil) != refused {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

// What is obsolete and cannot be removed is said: without that the fence is not as it was declared.
func TestWhatIsObsoleteAndStays(t *testing.T) {
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
		if _, err := Apply(t.Context(), client, set); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "no longer has") {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatStands(t *testing.T) {
	if Judge([]Finding{{Verdict: Holds}, {Verdict: Skipped}}, Judging{}) != nil || Judge([]Finding{{Verdict: Undecided}}, Judging{}) == nil || Judge([]Finding{{Verdict: Fails}}, Judging{}) == nil {
		t.Error("what stands is not what holds, or is skipped")
	}
	if contains(map[string]string{"a": "b"}, map[string]string{"c": ""}) {
		t.Error("a label that is not there counts as an empty one")
	}
}

// Only the version that was read is replaced, and nothing that somebody else has written since.
func TestAReplacementIsOfAVersion(t *testing.T) {
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

// What was answered last is in the error: of which kinds there are, and whether an API server acts on policies.
func TestTheLastAnswerIsSaid(t *testing.T) {
	away := errors.New("the API server is away")
	set, err := fence.Render("sys", guarding(fence.Guard{Resources: []string{"pods"}, Namespaces: []string{"apps"}}))
	if err != nil {
		t.Fatal(err)
	}
	client := newScripted(t, func(string, string) (any, error) { return nil, away })
	if err := scopes(client, set); !errors.Is(err, away) || !strings.Contains(err.Error(), "which kinds lie in namespaces") {
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

// A warning that comes after the answer waits for nobody.
func TestWarningsAreReadAndLeft(t *testing.T) {
	w := write{warnings: &warnings{}}
	if got := w.warned(Admitted); got != Admitted || !w.warnings.mu.TryLock() {
		t.Errorf("it is %v, or what it holds is locked", got)
	}
}
