package leaderelection

import (
	"slices"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/pkg/revisions"
)

// testWatcher is a watcher with handlers that the test calls. It can reject handlers.
type testWatcher struct {
	mu       sync.Mutex
	revision string
	synced   bool
	takes    bool
	handlers []revisions.DefaultHandler
	asked    int
}

// newWatcher returns a watcher that has synced and accepts handlers.
func newWatcher(revision string) *testWatcher {
	return &testWatcher{revision: revision, synced: true, takes: true}
}

func (*testWatcher) Run(<-chan struct{}) {}

func (w *testWatcher) HasSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	return w.synced
}

func (w *testWatcher) GetDefault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

func (w *testWatcher) AddHandler(h revisions.DefaultHandler) {
	if !w.takes {
		panic("unimplemented")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers = append(w.handlers, h)
}

func (w *testWatcher) is(revision string) {
	w.mu.Lock()
	w.revision, w.synced = revision, true
	handlers := append([]revisions.DefaultHandler{}, w.handlers...)
	w.mu.Unlock()
	for _, h := range handlers {
		h(revision)
	}
}

func (w *testWatcher) count() (asked, handlers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked, len(w.handlers)
}

// leavable is a watcher from which handlers can be removed.
type leavable struct{ testWatcher }

func (w *leavable) Subscribe(h revisions.DefaultHandler) (unsubscribe func()) {
	w.AddHandler(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := len(w.handlers) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.handlers = slices.Delete(w.handlers, mine, mine+1)
	}
}

// An election removes its handler from a watcher that outlives it.
func TestRunContext_RemovesHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := &leavable{testWatcher{takes: true, synced: true, revision: "canary"}}
		for _, name := range []string{"a", "b", "a"} {
			a := s.candidate(t, name, func(c *Config) { c.DefaultWatcher = w }).starts(t)
			passes(time.Second)
			if _, handlers := w.count(); handlers != 1 || !a.IsLeader() {
				t.Errorf("%d handlers; %+v", handlers, a.Status())
			}
			w.is("stable")
			passes(0)
			if a.Status().Default != "stable" {
				t.Errorf("the elector did not receive the default revision: %+v", a.Status())
			}
			w.is("canary")
			if err := a.quits(); err != nil {
				t.Error(err)
			}
			if _, handlers := w.count(); handlers != 0 {
				t.Errorf("%d handlers are left", handlers)
			}
		}
	})
}

// The elector receives each default revision by one handler, in all runs. A watcher that rejects handlers is
// polled once per RetryPeriod.
func TestDefaultRevisionChange(t *testing.T) {
	for _, takes := range []bool{true, false} {
		inBubble(t, func(t *testing.T, s *lockServer) {
			w := &testWatcher{takes: takes}
			a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher = w })
			a.sharing = true // the comparison then uses the value of the elector
			a.starts(t)
			passes(time.Second)
			if a.IsLeader() || a.Status().DefaultKnown || a.currentDefault().Synced {
				t.Errorf("handlers %v: before the watcher has synced: %+v", takes, a.Status())
			}
			w.is("canary")
			if passes(0); takes != a.Status().DefaultKnown {
				t.Errorf("handlers %v: immediately: %+v", takes, a.Status())
			}
			passes(playRetry + time.Millisecond)
			if st := a.Status(); !st.DefaultKnown || st.Default != "canary" || a.currentDefault().Revision != "canary" {
				t.Errorf("handlers %v: %+v", takes, st)
			}
			from, _ := w.count()
			passes(10 * playRetry)
			if asked, _ := w.count(); takes && asked != from || !takes && (asked-from < 9 || asked-from > 11) {
				t.Errorf("handlers %v: polled %d times", takes, asked-from)
			}
			if err := a.quits(); err != nil {
				t.Error(err)
			}
			from, _ = w.count()
			passes(10 * playRetry)
			if asked, _ := w.count(); asked != from {
				t.Errorf("handlers %v: polled after the end", takes)
			}
			a.starts(t)
			passes(time.Second)
			if _, handlers := w.count(); takes && handlers != 1 || a.Status().Default != "canary" {
				t.Errorf("handlers %v: %d handlers, %+v", takes, handlers, a.Status())
			}
			if err := a.quits(); err != nil {
				t.Error(err)
			}
			if got := a.log.Count("accepts no handlers"); takes != (got == 0) || got > 1 {
				t.Errorf("handlers %v: logged %d times", takes, got)
			}
		})
	}
	// A per-revision election has no rank and does not read the default revision.
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := &testWatcher{takes: true}
		a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher, c.PerRevision = w, true })
		unfollow := a.followDefault()
		unfollow()
		if asked, handlers := w.count(); asked > 0 || handlers > 0 {
			t.Errorf("polled %d times, %d handlers", asked, handlers)
		}
	})
}

// answersLate is a watcher that blocks until the test releases it.
type answersLate struct {
	watcher
	let chan struct{}
}

func (w *answersLate) HasSynced() bool { <-w.let; return true }

// The end of polling and the release of shared clients wait for pending calls.
func TestEndsWaitForCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := &answersLate{let: make(chan struct{}, 1)}
		w.let <- struct{}{} // for the first call
		a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher = w })
		end := a.pollDefault()
		c := &shared{in: &registry{}, users: 1, stop: make(chan struct{}), client: unreachable(t)}
		c.running.Go(func() { <-c.stop; <-w.let })
		passes(playRetry + time.Millisecond)
		var ended, released bool
		go func() { end(); ended = true }()
		go func() { c.release(); released = true }()
		if passes(time.Minute); ended || released {
			t.Errorf("polling has ended: %v, client is released: %v", ended, released)
		}
		close(w.let)
		if passes(time.Minute); !ended || !released {
			t.Errorf("polling has ended: %v, client is released: %v", ended, released)
		}
	})
}
