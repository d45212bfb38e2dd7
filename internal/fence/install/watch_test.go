package install

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestWatch_CannotStart(t *testing.T) {
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

func TestWatch_ReportsChanges(t *testing.T) {
	labelled := policyNamed("copied-by-hand", 1)
	labelled.Labels = map[string]string{fence.SetLabel: "s"}
	recreated := policyNamed(fence.PolicyPrefix+"a", 1)
	recreated.UID = "another"
	for name, x := range map[string]struct {
		event watch.Event
		want  int
	}{
		"a created object":    {watch.Event{Type: watch.Added, Object: policyNamed(fence.PolicyPrefix+"b", 1)}, 2},
		"one that changes":    {watch.Event{Type: watch.Modified, Object: policyNamed(fence.PolicyPrefix+"a", 2)}, 2},
		"a recreated object":  {watch.Event{Type: watch.Modified, Object: recreated}, 2},
		"one that goes":       {watch.Event{Type: watch.Deleted, Object: policyNamed(fence.PolicyPrefix+"a", 1)}, 2},
		"one by its label":    {watch.Event{Type: watch.Added, Object: labelled}, 2},
		"its status":          {watch.Event{Type: watch.Modified, Object: policyNamed(fence.PolicyPrefix+"a", 1)}, 0},
		"another's":           {watch.Event{Type: watch.Modified, Object: policyNamed("another", 2)}, 0},
		"another's that goes": {watch.Event{Type: watch.Deleted, Object: policyNamed("another", 1)}, 0},
		"a bookmark":          {watch.Event{Type: watch.Bookmark, Object: policyNamed(fence.PolicyPrefix+"b", 5)}, 0},
		"no object":           {watch.Event{Type: watch.Added, Object: &metav1.Status{}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWatch(t, func(t *testing.T, w *watching) {
				if changes, failures := w.counts(); changes != 0 || failures != 0 {
					t.Errorf("at the start: %d changes, %d failures", changes, failures)
				}
				if o := w.from[0]; o.ResourceVersion != "17" || !o.AllowWatchBookmarks {
					t.Errorf("watched from %+v", o)
				}
				w.last().Action(x.event.Type, x.event.Object)
				if changes, _ := w.counts(); changes != x.want/2 {
					t.Errorf("immediately: called %d times", changes)
				}
				goesBy(loadTime - time.Millisecond)
				if changes, _ := w.counts(); changes != x.want/2 {
					t.Errorf("before API servers act on it: told %d times", changes)
				}
				goesBy(time.Minute)
				if changes, failures := w.counts(); changes != x.want || failures != 0 {
					t.Errorf("told %d times, %d failures", changes, failures)
				}
				// The same once more is none.
				if w.last().Action(x.event.Type, x.event.Object); x.event.Type != watch.Deleted {
					if changes, _ := w.counts(); changes != x.want {
						t.Errorf("twice the same: told %d times", changes)
					}
				}
				if w.listed() != 1 {
					t.Errorf("listed %d times", w.listed())
				}
			})
		})
	}
	inWatch(t, func(t *testing.T, w *watching) {
		w.others[0].Add(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fence.PolicyPrefix + "a"}})
		if changes, _ := w.counts(); changes != 1 {
			t.Errorf("a binding: told %d times", changes)
		}
	})
}

func TestWatch_Restarts(t *testing.T) {
	inWatch(t, func(t *testing.T, w *watching) {
		w.last().Stop()
		goesBy(watchPause - time.Millisecond)
		if w.listed() != 1 {
			t.Error("without a pause")
		}
		goesBy(2 * time.Millisecond)
		if changes, failures := w.counts(); w.listed() != 2 || changes != 0 || failures != 0 {
			t.Errorf("listed %d times, %d changes, %d failures", w.listed(), changes, failures)
		}
		w.watched.mu.Lock()
		w.policies = append(w.policies, *policyNamed("yet another", 1))
		w.watched.mu.Unlock()
		w.last().Error(&metav1.Status{Code: 410})
		goesBy(watchPause + time.Millisecond)
		if changes, failures := w.counts(); w.listed() != 3 || changes != 0 || failures != 0 {
			t.Errorf("after an error event: listed %d times, %d changes, %d failures", w.listed(), changes, failures)
		}
		w.watched.mu.Lock()
		w.policies = w.policies[1:]
		w.watched.mu.Unlock()
		w.last().Stop()
		goesBy(watchPause + time.Millisecond)
		if changes, _ := w.counts(); changes != 1 {
			t.Errorf("deleted in between: called %d times", changes)
		}
		goesBy(time.Minute)
		w.watched.mu.Lock()
		w.policies = []admissionv1.ValidatingAdmissionPolicy{*policyNamed(fence.PolicyPrefix+"a", 1)}
		w.watched.mu.Unlock()
		w.last().Stop()
		goesBy(time.Minute)
		if changes, _ := w.counts(); changes != 4 {
			t.Errorf("and exists again: called %d times", changes)
		}
	})
	inWatch(t, func(t *testing.T, w *watching) {
		w.fail(errors.New("not now"))
		w.last().Stop()
		from := w.listed()
		goesBy(10 * time.Minute)
		// After 1, 2, 4 … 60 s, and then once a minute.
		if got := w.listed() - from; got < 12 || got > 16 {
			t.Errorf("tried %d times in ten minutes", got)
		}
		if last := w.lists[len(w.lists)-1] - w.lists[len(w.lists)-2]; last != watchLongest {
			t.Errorf("tried every %v", last)
		}
		if changes, failures := w.counts(); changes != 0 || failures != 1 || w.log.Count(`verb="watch `+policyKind+`"`, `err="not now"`) != 1 {
			t.Errorf("%d changes, %d failures:\n%s", changes, failures, w.log.String())
		}
		w.fail(nil)
		goesBy(watchLongest)
		if w.log.Count("responds again") != 1 {
			t.Errorf("the end of a spell:\n%s", w.log.String())
		}
		w.fail(errors.New("again"))
		w.last().Stop()
		goesBy(3 * watchPause)
		if _, failures := w.counts(); failures != 2 {
			t.Errorf("a second spell: %d failures", failures)
		}
	})
	// It ends while it waits, and while it watches: inWatch waits for that.
	inWatch(t, func(t *testing.T, w *watching) {
		before := time.Now()
		w.last().Stop()
		goesBy(0)
		w.cancel()
		<-w.ended
		if took := time.Since(before); took > 0 {
			t.Errorf("ended after %v", took)
		}
	})
}

// watched is an API server whose policies and bindings the test changes.
type watched struct {
	kubernetes.Interface
	admissionclient.AdmissionregistrationV1Interface

	mu       sync.Mutex
	policies []admissionv1.ValidatingAdmissionPolicy
	bindings []admissionv1.ValidatingAdmissionPolicyBinding
	fails    error
	lists    []time.Duration // when policies were listed
	began    time.Time
	streams  []*watch.FakeWatcher // of policies
	others   []*watch.FakeWatcher // of bindings
	from     []metav1.ListOptions
}

func (w *watched) AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface {
	return w
}

func (w *watched) ValidatingAdmissionPolicies() admissionclient.ValidatingAdmissionPolicyInterface {
	return watchedPolicies{w: w}
}

func (w *watched) ValidatingAdmissionPolicyBindings() admissionclient.ValidatingAdmissionPolicyBindingInterface {
	return watchedBindings{w: w}
}

type watchedPolicies struct {
	admissionclient.ValidatingAdmissionPolicyInterface
	w *watched
}

func (p watchedPolicies) List(context.Context, metav1.ListOptions) (*admissionv1.ValidatingAdmissionPolicyList, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.lists = append(p.w.lists, time.Since(p.w.began))
	if p.w.fails != nil {
		return nil, p.w.fails
	}
	return &admissionv1.ValidatingAdmissionPolicyList{ListMeta: metav1.ListMeta{ResourceVersion: "17"}, Items: append([]admissionv1.ValidatingAdmissionPolicy{}, p.w.policies...)}, nil
}

func (p watchedPolicies) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.from = append(p.w.from, o)
	p.w.streams = append(p.w.streams, watch.NewFake())
	return p.w.streams[len(p.w.streams)-1], nil
}

type watchedBindings struct {
	admissionclient.ValidatingAdmissionPolicyBindingInterface
	w *watched
}

func (b watchedBindings) List(context.Context, metav1.ListOptions) (*admissionv1.ValidatingAdmissionPolicyBindingList, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return &admissionv1.ValidatingAdmissionPolicyBindingList{ListMeta: metav1.ListMeta{ResourceVersion: "17"}, Items: append([]admissionv1.ValidatingAdmissionPolicyBinding{}, b.w.bindings...)}, nil
}

func (b watchedBindings) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.w.others = append(b.w.others, watch.NewFake())
	return b.w.others[len(b.w.others)-1], nil
}

// last is the stream that is open.
func (w *watched) last() *watch.FakeWatcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams[len(w.streams)-1]
}

func (w *watched) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = err
}

func (w *watched) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lists)
}

func policyNamed(name string, generation int64) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation, UID: types.UID("u-" + name)}}
}

// watching runs a Watch and counts its calls.
type watching struct {
	*watched
	mu      sync.Mutex
	changes []time.Duration
	log     harness.Log
	cancel  context.CancelFunc
	ended   chan struct{}
}

func inWatch(t *testing.T, f func(t *testing.T, w *watching)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &watching{watched: &watched{began: time.Now()}, cancel: cancel, ended: make(chan struct{})}
		w.policies = []admissionv1.ValidatingAdmissionPolicy{*policyNamed(fence.PolicyPrefix+"a", 1), *policyNamed("another", 1)}
		go func() {
			defer close(w.ended)
			Watch(ctx, w.watched, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changes = append(w.changes, time.Since(w.began))
			}, slog.New(slog.NewTextHandler(&w.log, nil)))
		}()
		goesBy(0)
		f(t, w)
		cancel()
		<-w.ended
		for _, stream := range append(w.streams, w.others...) {
			if !stream.IsStopped() {
				t.Error("a stream stays open")
			}
		}
	})
}

func goesBy(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// counts is how often changed was called, and how many failures were logged.
func (w *watching) counts() (changes, failures int) {
	goesBy(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.changes), w.log.Count("level=WARN")
}
