package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// alone runs f on a ConfigMap, whose watches nobody shares.
func alone(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	synctest.Test(t, func(t *testing.T) { f(t, locktest.NewStore(locktest.ConfigMap)) })
}

func TestStatusSaysWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.Ranked = true })
		if s := a.Status(); s.Known || s.Default.Synced {
			t.Errorf("before it runs: %+v", s)
		}
		a.start(t)
		pass(time.Second)
		if s := a.Status(); !s.Known || s.Default.Synced {
			t.Errorf("the lock was read, the default was not told: %+v", s)
		}
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
		pass(time.Second)
		if s := a.Status(); s.Default != (le.DefaultRevision{Synced: true, Revision: "canary"}) {
			t.Errorf("the default was told: %+v", s)
		}
	})
}

// The elector asks for the default revision when it starts and at each Refresh, whenever that comes; one that is not
// synced takes back nothing.
func TestWhenTheDefaultRevisionIsAskedFor(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.Ranked = true })
		known := func(when, revision string) {
			t.Helper()
			pass(time.Second)
			if s := a.Status(); s.Default != (le.DefaultRevision{Synced: revision != "", Revision: revision}) {
				t.Errorf("%s: %+v", when, s.Default)
			}
		}
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
		known("before it runs", "")
		a.defaultRevision.Store(&le.DefaultRevision{Synced: true, Revision: "stable"})
		a.start(t)
		known("it has started", "stable")
		a.defaultRevision.Store(&le.DefaultRevision{Synced: true, Revision: "canary"})
		known("not asked", "stable")
		for range 3 {
			go a.Refresh()
		}
		known("asked", "canary")
		a.setDefaultRevision(le.DefaultRevision{})
		known("forgotten", "canary")
		if err := a.quit(); err != nil {
			t.Error(err)
		}
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		known("after the end", "canary")
	})
}

func TestStepDownByTheProcessItself(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		a.StepDown()
		pass(time.Second)
		if a.isLive() || !b.isLive() {
			t.Errorf("live: a %v, b %v", a.isLive(), b.isLive())
		}
	})
}

// Electors that share a Shared wait for each other's calls, for half of a call's time.
func TestElectorsWaitForEachOthersCalls(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		shared := &k8sresourcelock.Shared{CallsAtOnce: 1}
		with := func(c *le.LeaderElectionConfig) { c.Shared = shared }
		a := prepare(t, store, "a", with)
		a.cut(true)
		a.start(t)
		synctest.Wait()
		b := enter(t, store, "b", with)
		pass((renew-retry)/2/2 - time.Millisecond)
		if n := b.lock.Requests()[locktest.Get]; n != 0 {
			t.Errorf("%d reads beside one that is under way", n)
		}
		pass(2 * time.Millisecond)
		if n := b.lock.Requests()[locktest.Get]; n != 1 {
			t.Errorf("%d reads after half of a call's time", n)
		}
	})
}

// A lock that cannot be read is not one that is not there.
func TestNothingIsWrittenOnWhatCannotBeRead(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute)
		b := prepare(t, store, "b")
		b.lock.Forbid(locktest.Get, locktest.Watch)
		b.start(t)
		pass(time.Minute)
		if n := b.lock.Requests(); n[locktest.Create] != 0 || n[locktest.Get] == 0 || !a.isLive() || !strings.Contains(b.logged(), "cannot get it") {
			t.Errorf("requests %v, log\n%s", n, b.logged())
		}
	})
}

// heeded is a context that knows who waits for its end.
type heeded struct {
	context.Context
	mu      sync.Mutex
	waiting int
}

// Value hides the context below, which the package context would go to directly.
func (h *heeded) Value(any) any { return nil }

// AfterFunc is called by the package context, if it is there.
func (h *heeded) AfterFunc(f func()) func() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting++
	stop := context.AfterFunc(h.Context, f)
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting--
		return stop()
	}
}

func TestAnElectorThatHasEndedIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a")
		ctx := &heeded{Context: t.Context()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.Run(ctx) // one cycle
		}()
		pass(time.Minute)
		steal(store, "x")
		<-ended
		synctest.Wait()
		if ctx.waiting != 0 {
			t.Errorf("%d wait for the end of its context", ctx.waiting)
		}
	})
}

// A check that its end has cut short says nothing about fitness.
func TestTheEndIsNotUnfitness(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.FitnessCheck = func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
					return nil
				}
			}
		})
		pass(retry + 1500*time.Millisecond) // the second check is under way
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(a.logged(), "unfit to lead") {
			t.Errorf("log\n%s", a.logged())
		}
	})
}

// While its watch is down a follower looks every RetryPeriod or two, as the jitter wants it;
// half as often would be the pace beside a watch that is up and silent.
func TestAFollowerPollsOnceItsWatchIsDown(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		enter(t, store, "a")
		pass(time.Second)
		b := enter(t, store, "b")
		pass(time.Minute)
		before := b.lock.Requests()[locktest.Get]
		var at []time.Time
		b.lock.SetFault(func(v locktest.Verb) locktest.Fault {
			if v == locktest.Get {
				at = append(at, time.Now())
			}
			return locktest.Fault{}
		})
		b.lock.Forbid(locktest.Watch)
		b.lock.DropWatches()
		pass(40 * retry)
		if n := b.lock.Requests()[locktest.Get] - before; n <= 20 || n > 40 {
			t.Errorf("%d looks in 40 RetryPeriods", n)
		}
		between := map[time.Duration]bool{}
		for i := 1; i < len(at); i++ {
			between[at[i].Sub(at[i-1])] = true
		}
		if len(between) < 3 {
			t.Errorf("looks after %v each: many would come together", between)
		}
	})
}

// Tries that fail do not put polls off.
func TestPollsGoOnBesideWatchesThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		enter(t, store, "a")
		pass(time.Second)
		b := enter(t, store, "b")
		pass(time.Minute)
		b.lock.SetFault(func(v locktest.Verb) locktest.Fault {
			if v == locktest.Watch {
				return locktest.Fault{Err: apierrors.NewInternalError(errors.New("etcd"))}
			}
			return locktest.Fault{}
		})
		b.lock.DropWatches()
		before := b.lock.Requests()[locktest.Get]
		pass(40 * retry)
		if n := b.lock.Requests()[locktest.Get] - before; n <= 20 || n > 40 {
			t.Errorf("%d looks in 40 RetryPeriods", n)
		}
	})
}

// A watch that has lasted is made again at once, whatever was before it.
func TestAGoodWatchIsMadeAgainAtOnce(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		enter(t, store, "a")
		pass(time.Second)
		b := prepare(t, store, "b")
		b.lock.Forbid(locktest.Watch)
		b.start(t)
		pass(2 * time.Minute)
		b.lock.Allow(locktest.Watch)
		pass(4 * retry)
		if b.lock.Watching() != 1 {
			t.Fatal("no watch")
		}
		pass(2 * time.Minute)
		b.lock.DropWatches()
		pass(time.Millisecond)
		if b.lock.Watching() != 1 {
			t.Error("it pauses after a watch that was good")
		}
	})
}

func TestKeyComparisonPreempts(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute)
		b := enter(t, store, "b", func(c *le.LeaderElectionConfig) {
			c.KeyComparison = func(key string) bool { return key == "stable" }
		})
		pass(2 * time.Second)
		if a.isLive() || record(store).HolderIdentity != "b" {
			t.Errorf("a leads %v, the holder is %s", a.isLive(), record(store).HolderIdentity)
		}
		if s := b.Status(); s.Phase == "settling" && (s.Leading || b.IsLeader() || s.ValidFor != 0) {
			t.Errorf("it settles, and says that it may act: %+v", s)
		}
		pass(2 * lease)
		if !b.isLive() {
			t.Error("b does not lead")
		}
	})
}

// gateOf notes what an elector does with its gate.
type gateOf struct {
	mu     sync.Mutex
	open   bool
	term   le.Term
	drains int
}

func (g *gateOf) Set(term le.Term, end le.Validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.term = end != le.Validity{}, term
}

func (g *gateOf) Drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drains++
}

func (g *gateOf) wants(t *testing.T, open bool, drains int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != open || g.drains != drains || open != (g.term != le.Term{}) {
		t.Errorf("open %v in term %+v, drained %d times; want %v, %d", g.open, g.term, g.drains, open, drains)
	}
}

func TestTheGateGoesWithTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		g := &gateOf{}
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) { c.Gate = g })
		pass(time.Second)
		g.wants(t, true, 0)
		steal(store, "x")
		pass(time.Second)
		g.wants(t, false, 1)
		if err := a.quit(); err != nil {
			t.Error(err)
		}
	})
}

// metrics counts who leads.
type metrics struct {
	mu sync.Mutex
	on map[string]bool
}

func (m *metrics) NewLeaderMetric() le.SwitchMetric { return m }
func (m *metrics) On(name string)                   { m.set(name, true) }
func (m *metrics) Off(name string)                  { m.set(name, false) }

func (m *metrics) set(name string, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on[name] = on
}

func TestMetricsOfTheProvider(t *testing.T) {
	m := &metrics{on: map[string]bool{}}
	le.SetProvider(m)
	defer le.SetProvider(nil)
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) { c.Name = "metered" })
		pass(time.Second)
		if !m.on["metered"] {
			t.Error("it leads, and the metric is off")
		}
		if err := a.quit(); err != nil || m.on["metered"] {
			t.Errorf("it has ended, the metric is on %v, error %v", m.on["metered"], err)
		}
	})
}

// Of a lock with no more than Interface too, people hear why its leader has stopped.
func TestALockWithoutWarningsStillTells(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		var w witness
		lock := store.LockWith(k8sresourcelock.ResourceLockConfig{Identity: "a", Key: "stable", EventRecorder: &w})
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) { c.Lock = lock.Plain() })
		pass(time.Minute)
		if !a.isLive() {
			t.Fatal("a does not lead")
		}
		steal(store, "x")
		pass(lease)
		events, _, _ := w.take()
		if last := events[len(events)-1]; !strings.HasPrefix(last, "a stopped leading (") || strings.HasPrefix(last, "Warning") {
			t.Errorf("events %q", events)
		}
	})
}
