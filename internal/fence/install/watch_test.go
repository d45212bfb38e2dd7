package install

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestWatch_CannotStart(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		for resource, kind := range map[string]string{bothPolicies: policyKind, bothBindings: bindingKind} {
			inWatch(t, func(w *watching) { w.fail(verb, resource, errAway) }, func(t *testing.T, w *watching) {
				if w.log.Count("level=WARN") != 1 || w.log.Count("level=WARN", `verb="`+verb+` `+kind+`"`, errAway.Error()) != 1 {
					t.Errorf("%s %s: logged\n%s", verb, resource, w.log.String())
				}
			})
		}
	}
}

func TestWatch_ReportsChanges(t *testing.T) {
	labelled := policyNamed("copied-by-hand", 1)
	labelled.Labels = map[string]string{fence.SetLabel: "s"}
	recreated := policyNamed(fence.PolicyPrefix+"a", 1)
	recreated.UID = "another"
	for name, x := range map[string]struct {
		event watch.Event
		want  int
	}{
		"created":             {watch.Event{Type: watch.Added, Object: policyNamed(fence.PolicyPrefix+"b", 1)}, 2},
		"changed":             {watch.Event{Type: watch.Modified, Object: policyNamed(fence.PolicyPrefix+"a", 2)}, 2},
		"recreated":           {watch.Event{Type: watch.Modified, Object: recreated}, 2},
		"deleted":             {watch.Event{Type: watch.Deleted, Object: policyNamed(fence.PolicyPrefix+"a", 1)}, 2},
		"by its label":        {watch.Event{Type: watch.Added, Object: labelled}, 2},
		"status":              {watch.Event{Type: watch.Modified, Object: policyNamed(fence.PolicyPrefix+"a", 1)}, 0},
		"of no fence":         {watch.Event{Type: watch.Modified, Object: policyNamed("another", 2)}, 0},
		"deleted of no fence": {watch.Event{Type: watch.Deleted, Object: policyNamed("another", 1)}, 0},
		"bookmark":            {watch.Event{Type: watch.Bookmark, Object: policyNamed(fence.PolicyPrefix+"b", 5)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWatch(t, nil, func(t *testing.T, w *watching) {
				w.expect(t, "at the start", 0, 1, 0)
				if o := w.options[0]; o.ResourceVersion != "17" || !o.AllowWatchBookmarks {
					t.Errorf("watched from %+v", o)
				}
				w.last().Action(x.event.Type, x.event.Object)
				w.expect(t, "immediately", x.want/2, 1, 0)
				pass(loadTime - time.Millisecond)
				w.expect(t, "before API servers have loaded it", x.want/2, 1, 0)
				pass(time.Minute)
				w.expect(t, "afterwards", x.want, 1, 0)
				if x.event.Type != watch.Deleted {
					w.last().Action(x.event.Type, x.event.Object)
					w.expect(t, "the same event again", x.want, 1, 0)
				}
			})
		})
	}
	inWatch(t, nil, func(t *testing.T, w *watching) {
		w.streams[bothBindings][0].Add(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fence.PolicyPrefix + "a"}})
		w.expect(t, "a binding", 1, 1, 0)
	})
}

func TestWatch_Restarts(t *testing.T) {
	inWatch(t, nil, func(t *testing.T, w *watching) {
		w.last().Stop()
		pass(time.Minute)
		w.expect(t, "after the end of a watch", 0, 2, 0)
		w.set(policyNamed(fence.PolicyPrefix+"a", 1), policyNamed("yet another", 1))
		w.last().Error(&metav1.Status{Code: 410})
		pass(time.Minute)
		w.expect(t, "after an error event", 0, 3, 0)
		w.set(policyNamed("yet another", 1))
		w.last().Stop()
		pass(time.Minute)
		w.expect(t, "deleted in between", 2, 4, 0)
		w.set(policyNamed(fence.PolicyPrefix+"a", 1))
		w.last().Stop()
		pass(time.Minute)
		w.expect(t, "exists again", 4, 5, 0)
	})
	inWatch(t, nil, func(t *testing.T, w *watching) {
		w.fail("list", bothPolicies, errors.New("not now"))
		w.last().Stop()
		pass(10 * time.Minute)
		if w.log.Count("level=WARN") != 1 || w.log.Count(`verb="list `+policyKind+`"`, `err="not now"`) != 1 || w.changes != 0 {
			t.Errorf("%d changes, logged\n%s", w.changes, w.log.String())
		}
		w.fail("list", bothPolicies, nil)
		pass(2 * watchLongest)
		if w.log.Count("responds again") != 1 {
			t.Errorf("when it responds again, logged\n%s", w.log.String())
		}
	})
	// Watch ends during a pause, and (in all other tests) while it watches.
	inWatch(t, nil, func(t *testing.T, w *watching) {
		before := time.Now()
		w.last().Stop()
		pass(0)
		w.cancel()
		<-w.ended
		if took := time.Since(before); took > 0 {
			t.Errorf("ended after %v", took)
		}
	})
}

func policyNamed(name string, generation int64) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation, UID: types.UID("u-" + name)}}
}

// watching runs a Watch on policies that the test changes.
type watching struct {
	log    harness.Log
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	policies []admissionv1.ValidatingAdmissionPolicy
	failing  map[string]error // by verb and resource
	changes  int
	lists    []time.Time // of policies
	options  []metav1.ListOptions
	streams  map[string][]*watch.FakeWatcher // by resource
}

// set changes the stored policies.
func (w *watching) set(policies ...*admissionv1.ValidatingAdmissionPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies = nil
	for _, p := range policies {
		w.policies = append(w.policies, *p)
	}
}

// fail makes one kind of request fail. A nil error ends that.
func (w *watching) fail(verb, resource string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = map[string]error{verb + " " + resource: err}
}

func (w *watching) list(a clienttesting.Action) (runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.failing["list "+a.GetResource().Resource]
	if a.GetResource().Resource != bothPolicies {
		return nil, err
	}
	w.lists = append(w.lists, time.Now())
	return &admissionv1.ValidatingAdmissionPolicyList{ListMeta: metav1.ListMeta{ResourceVersion: "17"}, Items: w.policies}, err
}

func (w *watching) watch(a clienttesting.Action) (bool, watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	resource, stream := a.GetResource().Resource, watch.NewFake()
	if err := w.failing["watch "+resource]; err != nil {
		return true, nil, err
	}
	if resource == bothPolicies {
		w.options = append(w.options, a.(clienttesting.WatchActionImpl).ListOptions)
	}
	w.streams[resource] = append(w.streams[resource], stream)
	return true, stream, nil
}

// inWatch runs f while a Watch runs, after an optional preparation.
func inWatch(t *testing.T, prepare func(w *watching), f func(t *testing.T, w *watching)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &watching{cancel: cancel, ended: make(chan struct{}), streams: map[string][]*watch.FakeWatcher{}}
		w.set(policyNamed(fence.PolicyPrefix+"a", 1), policyNamed("another", 1))
		client := newScripted(w.list)
		client.AddWatchReactor("*", w.watch)
		if prepare != nil {
			prepare(w)
		}
		go func() {
			defer close(w.ended)
			changed := func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changes++
			}
			Watch(ctx, client, changed, slog.New(slog.NewTextHandler(&w.log, nil)))
		}()
		pass(0)
		f(t, w)
		cancel()
		<-w.ended
		for _, stream := range slices.Concat(w.streams[bothPolicies], w.streams[bothBindings]) {
			if !stream.IsStopped() {
				t.Error("a stream stays open")
			}
		}
	})
}

var pass = harness.Pass

// last returns the most recent stream of policies.
func (w *watching) last() *watch.FakeWatcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.streams[bothPolicies]
	return all[len(all)-1]
}

// expect compares the calls of changed, the lists of policies, and the logged failures.
func (w *watching) expect(t *testing.T, when string, changes, lists, failures int) {
	t.Helper()
	pass(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if logged := w.log.Count("level=WARN"); w.changes != changes || len(w.lists) != lists || logged != failures {
		t.Errorf("%s: %d changes, %d lists, %d failures; want %d, %d, %d", when, w.changes, len(w.lists), logged, changes, lists, failures)
	}
}
