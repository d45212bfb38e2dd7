package leaderelection

import (
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/pkg/revisions"
)

// testWatcher is a watcher that counts calls. It can be out of sync.
type testWatcher struct {
	*defaults.Watcher
	synced          atomic.Bool
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

// The elector receives each default revision by one handler, in all runs, and does not poll.
func TestDefaultRevisionChange(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		w := &testWatcher{Watcher: defaults.New("")}
		a := s.candidate(t, "a", func(c *Config) { c.DefaultWatcher = w })
		a.sharing = true // the comparison then uses the value of the elector
		a.starts(t)
		passes(time.Second)
		if a.IsLeader() || a.Status().Default.Synced || a.currentDefault().Synced {
			t.Errorf("before the watcher has synced: %+v", a.Status())
		}
		w.synced.Store(true)
		w.Set("canary")
		passes(0)
		if st := a.Status(); !st.Default.Synced || st.Default.Revision != "canary" || a.currentDefault().Revision != "canary" {
			t.Errorf("%+v", st)
		}
		passes(playRetry)
		from := w.asked.Load()
		passes(10 * playRetry)
		if n := w.asked.Load() - from; n != 0 {
			t.Errorf("polled %d times", n)
		}
		a.Stop(t)
		a.starts(t)
		passes(time.Second)
		if n := w.handlers.Load(); n != 1 || a.Status().Default.Revision != "canary" {
			t.Errorf("%d handlers, %+v", n, a.Status())
		}
		a.Stop(t)
	})
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

// The release of shared clients waits for the elections that run with them.
func TestSharedRelease_Waits(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *lockServer) {
		let := make(chan struct{})
		c := &shared{in: &registry{}, users: 1, stop: make(chan struct{}), client: unreachable(t)}
		c.running.Go(func() { <-c.stop; <-let })
		var released bool
		go func() { c.release(); released = true }()
		if passes(time.Minute); released {
			t.Error("released before the watcher ended")
		}
		close(let)
		if passes(time.Minute); !released {
			t.Error("not released")
		}
	})
}
