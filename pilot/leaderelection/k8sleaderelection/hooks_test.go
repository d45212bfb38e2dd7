package k8sleaderelection_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// blocker has all hooks of an elector. The hook with the given name blocks until release is closed.
type blocker struct {
	slog.Handler
	name    string
	release chan struct{}

	mu    sync.Mutex
	calls int // of that hook
}

func (b *blocker) call(name string) {
	if name != b.name {
		return
	}
	b.mu.Lock()
	b.calls++
	b.mu.Unlock()
	<-b.release
}

func (b *blocker) called() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *blocker) Eventf(apiruntime.Object, string, string, string, ...any) { b.call("EventRecorder") }
func (b *blocker) Phase(string, string, string, string)                     { b.call("Phase") }
func (b *blocker) Call(string, string, string, string, time.Duration)       { b.call("Call") }
func (b *blocker) Term(string, bool, string)                                { b.call("Term") }
func (b *blocker) StatusChanged(string)                                     { b.call("StatusChanged") }
func (b *blocker) ObserveDuration(string, le.Interval, time.Duration)       { b.call("ObserveDuration") }
func (b *blocker) NewLeaderMetric() le.SwitchMetric                         { b.call("NewLeaderMetric"); return b }
func (b *blocker) On(string)                                                { b.call("On") }
func (b *blocker) Off(string)                                               { b.call("Off") }
func (b *blocker) Enabled(context.Context, slog.Level) bool                 { b.call("Logger.Enabled"); return true }
func (b *blocker) Handle(context.Context, slog.Record) error                { b.call("Logger.Handle"); return nil }
func (b *blocker) WithAttrs([]slog.Attr) slog.Handler                       { b.call("Logger.WithAttrs"); return b }

// hook lets a candidate use all hooks.
func (b *blocker) hook(store *locktest.Store, c *le.LeaderElectionConfig) {
	c.Lock = store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: "a", Key: "stable", EventRecorder: b}).Lock
	c.Observer = b
	c.Logger = slog.New(b)
	c.Callbacks.OnNewLeader = func(string) { b.call("OnNewLeader") }
	c.Callbacks.OnStoppedLeading = func() { b.call("OnStoppedLeading") }
	switch b.name {
	case "KeyComparison":
		c.KeyComparison = func(string) bool { b.call("KeyComparison"); return false }
	case "DefaultRevision":
		c.Ranked = true
		c.DefaultRevision = func() le.DefaultRevision { b.call("DefaultRevision"); return le.DefaultRevision{} }
	}
	checks := 0
	c.FitnessCheck = func(context.Context) error {
		if checks++; checks > 1 { // before the first result, a candidate does not campaign
			b.call("FitnessCheck")
		}
		return nil
	}
}

// runBlocked runs a candidate with a hook that does not return.
func runBlocked(t *testing.T, name string, run func(*candidate) func(context.Context) error, check func(*candidate, *locktest.Store)) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		b := &blocker{name: name, release: make(chan struct{})}
		le.SetProvider(b)
		defer le.SetProvider(nil)
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { b.hook(store, c) })
		c.Start(t.Context(), run(c))
		advance(time.Minute)
		if !c.Live() || !c.IsLeader() || stored(store).HolderIdentity != "a" {
			t.Errorf("does not lead; record %+v", stored(store))
		}
		putHolder(store, "x")
		synctest.Wait()
		if c.Live() || c.IsLeader() {
			t.Error("continues to run after it lost the lock")
		}
		check(c, store)
		began := time.Now()
		c.Cancel()
		_ = c.Quit()
		if took := time.Since(began); took > 15*time.Second { // StopLimit
			t.Errorf("returned %v after the stop", took)
		}
		if b.called() == 0 {
			t.Error("the hook was not called")
		}
		close(b.release)
		synctest.Wait()
	})
}

// A hook that does not return delays neither the start nor the end of run functions, nor a release, nor a later term. Campaign and
// Run return within a bound.
func TestHook_Blocks(t *testing.T) {
	for _, name := range []string{
		"EventRecorder", "Phase", "Call", "Term", "StatusChanged", "ObserveDuration", "NewLeaderMetric", "On", "Off", "Logger.Enabled",
		"Logger.Handle", "Logger.WithAttrs", "OnNewLeader", "OnStoppedLeading", "FitnessCheck", "KeyComparison", "DefaultRevision",
	} {
		t.Run(name, func(t *testing.T) {
			campaign := func(c *candidate) func(context.Context) error { return c.Campaign }
			runBlocked(t, name, campaign, func(c *candidate, store *locktest.Store) {
				if name == "FitnessCheck" {
					return // an unfit candidate does not campaign
				}
				advance(2 * lease)
				if !c.Live() || len(c.Spans()) != 2 {
					t.Errorf("does not lead again; record %+v", stored(store))
				}
				c.Cancel()
				synctest.Wait()
				if c.Live() || stored(store).HolderIdentity != "" {
					t.Errorf("runs %v after the stop; record %+v", c.Live(), stored(store))
				}
			})
			once := func(c *candidate) func(context.Context) error {
				return func(ctx context.Context) error { c.Run(ctx); return nil }
			}
			runBlocked(t, name, once, func(*candidate, *locktest.Store) {})
		})
	}
}

// Reports that wait too long are dropped. Status and a log entry have their number, and the metric is right afterwards.
func TestHook_Drops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocker{name: "Call", release: make(chan struct{})}
		leads := &gauge{}
		le.SetProvider(leads)
		defer le.SetProvider(nil)
		store := locktest.NewStore(locktest.Lease)
		a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) { c.Observer = b })
		advance(2 * time.Hour)
		if n := a.Status().DroppedReports; n < 1000 || leads.value() != 0 || a.log.Count("dropped") != 0 {
			t.Errorf("dropped reports: %d, metric %d, log:\n%s", n, leads.value(), a.log.String())
		}
		close(b.release)
		if advance(time.Minute); leads.value() != 1 {
			t.Error("the metric does not show the leader")
		}
		a.Stop(t)
		if a.log.Count("level=WARN msg=\"dropped log entries, events and metrics") != 1 || leads.value() != 0 {
			t.Errorf("metric %d, log:\n%s", leads.value(), a.log.String())
		}
	})
}

// gauge is a metric and its provider.
type gauge struct{ n atomic.Int64 }

func (g *gauge) NewLeaderMetric() le.SwitchMetric { return g }
func (g *gauge) On(string)                        { g.n.Store(1) }
func (g *gauge) Off(string)                       { g.n.Store(0) }
func (g *gauge) value() int64                     { return g.n.Load() }

// A callback that calls runtime.Goexit and a slow callback do not end the elector.
func TestCallback_Goexit(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a := startCandidate(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnNewLeader = func(string) { runtime.Goexit() }
			c.Callbacks.OnStoppedLeading = runtime.Goexit
			asked := 0
			c.DefaultRevision = func() le.DefaultRevision {
				if asked++; asked == 1 {
					runtime.Goexit()
				}
				return le.DefaultRevision{Synced: true, Revision: "canary"}
			}
		})
		advance(2 * time.Second)
		a.Refresh()
		if advance(time.Second); a.Status().Default.Revision != "canary" {
			t.Errorf("default revision: %+v", a.Status().Default)
		}
		a.fail <- errors.New("no database")
		if advance(time.Minute); len(a.Spans()) != 2 || !a.Live() {
			t.Errorf("terms: %v", a.Spans())
		}
		a.Stop(t)
	})
}
