package leaderelection

import (
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/pkg/revisions"
)

// testWatcher is a watcher that counts calls. It can be out of sync and reject handlers.
type testWatcher struct {
	*defaults.Watcher
	synced          atomic.Bool
	rejects         bool
	asked, handlers atomic.Int32
}

// newWatcher returns a watcher that has synced.
func newWatcher(revision string) *testWatcher {
	w := &testWatcher{Watcher: defaults.New(revision)}
	w.synced.Store(true)
	return w
}

func (w *testWatcher) HasSynced() bool {
	w.asked.Add(1)
	return w.synced.Load()
}

func (w *testWatcher) AddHandler(h revisions.DefaultHandler) {
	if w.rejects {
		panic("unimplemented")
	}
	w.handlers.Add(1)
	w.Watcher.AddHandler(h)
}

// leavable is a watcher from which handlers can be removed.
type leavable struct{ *testWatcher }

func (w leavable) Subscribe(h revisions.DefaultHandler) (unsubscribe func()) {
	w.AddHandler(h)
	return func() { w.handlers.Add(-1) }
}

// An election removes its handler from a watcher that outlives it.
func TestRunContext_RemovesHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := leavable{newWatcher("canary")}
		for _, name := range []string{"a", "b", "a"} {
			a := s.candidate(t, name, func(c *Config) { c.DefaultWatcher = w }).starts(t)
			passes(time.Second)
			if n := w.handlers.Load(); n != 1 || !a.IsLeader() {
				t.Errorf("%d handlers; %+v", n, a.Status())
			}
			w.Set("stable")
			passes(0)
			if a.Status().Default.Revision != "stable" {
				t.Errorf("the elector did not receive the default revision: %+v", a.Status())
			}
			w.Set("canary")
			a.Stop(t)
			if n := w.handlers.Load(); n != 0 {
				t.Errorf("%d handlers are left", n)
			}
		}
	})
}

// The elector receives each default revision by one handler, in all runs. A watcher that rejects handlers is
// polled once per RetryPeriod.
func TestDefaultRevisionChange(t *testing.T) {
	for _, takes := range []bool{true, false} {
		inBubble(t, func(t *testing.T, s *lockServer) {
			w := &testWatcher{Watcher: defaults.New(""), rejects: !takes}
			a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher = w })
			a.sharing = true // the comparison then uses the value of the elector
			a.starts(t)
			passes(time.Second)
			if a.IsLeader() || a.Status().Default.Synced || a.currentDefault().Synced {
				t.Errorf("handlers %v: before the watcher has synced: %+v", takes, a.Status())
			}
			w.synced.Store(true)
			w.Set("canary")
			if passes(0); takes != a.Status().Default.Synced {
				t.Errorf("handlers %v: immediately: %+v", takes, a.Status())
			}
			passes(playRetry + time.Millisecond)
			if st := a.Status(); !st.Default.Synced || st.Default.Revision != "canary" || a.currentDefault().Revision != "canary" {
				t.Errorf("handlers %v: %+v", takes, st)
			}
			from := w.asked.Load()
			passes(10 * playRetry)
			if n := w.asked.Load() - from; takes && n != 0 || !takes && (n < 9 || n > 11) {
				t.Errorf("handlers %v: polled %d times", takes, n)
			}
			a.Stop(t)
			from = w.asked.Load()
			passes(10 * playRetry)
			if w.asked.Load() != from {
				t.Errorf("handlers %v: polled after the end", takes)
			}
			a.starts(t)
			passes(time.Second)
			if n := w.handlers.Load(); takes && n != 1 || a.Status().Default.Revision != "canary" {
				t.Errorf("handlers %v: %d handlers, %+v", takes, n, a.Status())
			}
			a.Stop(t)
			if got := a.log.Count("accepts no handlers"); takes != (got == 0) || got > 1 {
				t.Errorf("handlers %v: logged %d times", takes, got)
			}
		})
	}
	// A per-revision election has no rank and does not read the default revision.
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := newWatcher("")
		a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher, c.PerRevision = w, true })
		unfollow := a.followDefault()
		unfollow()
		if asked, handlers := w.asked.Load(), w.handlers.Load(); asked > 0 || handlers > 0 {
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
