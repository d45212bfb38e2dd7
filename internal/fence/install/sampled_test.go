package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// scripted is an API server on which nothing is, and that answers some of what it is asked as a test
// says. That policies do what they should is tried on a real one.
type scripted struct {
	kubernetes.Interface
	writes []string
	answer func(verb, resource string) (any, error) // nil, nil: as if nothing were there
	seen   func(verb string, r *http.Request)
}

func newScripted(t *testing.T, answer func(verb, resource string) (any, error)) *scripted {
	t.Helper()
	s := &scripted{answer: answer, seen: func(string, *http.Request) {}}
	var err error
	s.Interface, err = kubernetes.NewForConfig(&rest.Config{Host: "http://10.0.0.1", QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return s }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failing fails at one thing.
func failing(t *testing.T, verb, resource string, with error) *scripted {
	return newScripted(t, func(v, r string) (any, error) {
		if v == verb && r == resource {
			return nil, with
		}
		return nil, nil
	})
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, named := parts[len(parts)-1], false
	if n := len(parts); !slices.Contains([]string{bothPolicies, bothBindings, "configmaps"}, resource) && n > 1 {
		resource, named = parts[n-2], true
	}
	verb := map[string]string{http.MethodPatch: "patch", http.MethodPut: "update", http.MethodPost: "create", http.MethodDelete: "delete"}[r.Method]
	switch {
	case verb != "":
		s.writes = append(s.writes, verb+" "+resource)
	case named:
		verb = "get"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	default:
		verb = "list"
	}
	s.seen(verb, r)
	value, err := s.answer(verb, resource)
	if value == nil && err == nil && verb == "watch" {
		<-r.Context().Done() // nothing changes
		return nil, r.Context().Err()
	}
	if value == nil && err == nil && verb == "list" {
		value = map[string]any{"kind": map[string]string{bothPolicies: policyKind, bothBindings: bindingKind}[resource] + "List", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "5"}, "items": []any{}}
	} else if value == nil && err == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "x")
	}
	code := http.StatusOK
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		answer := status.Status()
		answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		value, code, err = answer, int(answer.Code), nil
	}
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(value)
	return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

const bothPolicies, bothBindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"

// What cannot be read is not written over: an installation ends with the reason, and has changed nothing.
func TestAnInstallationThatCannotRead(t *testing.T) {
	away := errors.New("the API server is away")
	set := simple(t, home, "home/p1")
	for _, resource := range []string{bothPolicies, bothBindings} {
		client := failing(t, "list", resource, away)
		changes, err := Apply(t.Context(), client, set)
		if !errors.Is(err, away) || !strings.Contains(err.Error(), "installing the fence") || len(changes) > 0 || len(client.writes) > 0 {
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
			p, _ := fence.Barrier("s", "n", "default") // what is applied is another one: it is replaced
			objects := map[string]any{bothPolicies: p.Policy, bothBindings: p.Binding}
			client := newScripted(t, func(verb, resource string) (any, error) {
				switch {
				case verb == test.verb && resource == test.resource:
					return nil, forbidden
				case verb == "patch", verb == "update":
					return objects[resource], nil
				}
				return nil, nil
			})
			replaced := 0
			client.seen = func(verb string, r *http.Request) {
				if verb != "update" {
					return
				}
				replaced++
				if manager := r.URL.Query().Get("fieldManager"); manager != fieldManager {
					t.Errorf("%s: %s is replaced by %q", name, r.URL.Path, manager)
				}
			}
			began := time.Now()
			err := seen(t.Context(), "s", client, Options{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.words) || time.Since(began) > 0 {
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
	err := all.conflicts(set)
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
	asked := 0
	client := newScripted(t, func(string, string) (any, error) { asked++; return nil, nil })
	widgets := slices.DeleteFunc(slices.Clone(set.Work), func(p fence.Pair) bool {
		return p.Policy.Spec.MatchConstraints.ResourceRules[0].APIGroups[0] != "x.y"
	})
	if err := scopes(client, fence.Set{Name: home, Work: widgets}); err != nil {
		t.Error(err)
	}
	if asked > 0 {
		t.Errorf("asked %d times", asked)
	}
}

// A label that is missing on a binding alone is missed, too.
func TestABindingsLabelCounts(t *testing.T) {
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
				client := failing(t, verb, resource, away)
				ctx, cancel := context.WithCancel(t.Context())
				var log harness.Log
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					Watch(ctx, client, func() {}, slog.New(slog.NewTextHandler(&log, nil)))
				}()
				synctest.Wait()
				cancel()
				<-ended
				if log.Count("level=WARN") != 1 || log.Count("level=WARN", `verb="watch `+kind+`"`, away.Error()) != 1 {
					t.Errorf("%s %s: it says\n%s", verb, resource, log.String())
				}
			})
		}
	}
}
