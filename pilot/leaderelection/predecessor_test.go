package leaderelection

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

const (
	oldLease = 30 * time.Second
	oldRenew = 15 * time.Second
	oldRetry = 7500 * time.Millisecond
)

// part is somebody's part in a lock, old or new, with a run function.
type part struct {
	name   string
	client *locktest.Client
	drain  time.Duration
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	seen seen

	watched func(p *part, works bool)
	faults  func(locktest.Verb) locktest.Fault
}

// seen records the state of a part so far.
type seen struct {
	live             bool
	started, stopped time.Time
	// bound is the end of its gate.
	bound k8sleaderelection.Validity
	// steppedDown is when it was told that its functions outstay their limit.
	steppedDown []time.Time
}

// saw is that at this moment: parts that are not told to end go on, and write to it while a test reads.
func (p *part) saw() seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen
	s.steppedDown = slices.Clone(s.steppedDown)
	return s
}

func (p *part) work(ctx context.Context) error {
	p.mu.Lock()
	p.seen.live, p.seen.started = true, time.Now()
	p.mu.Unlock()
	if p.watched != nil {
		p.watched(p, true)
		defer p.watched(p, false)
	}
	<-ctx.Done()
	<-time.After(p.drain)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.live, p.seen.stopped = false, time.Now()
	return nil
}

func (p *part) works() bool { return p.saw().live }

// stepDown ends the term of the election that has the predecessor.
func (p *part) stepDown() {
	p.mu.Lock()
	p.seen.steppedDown = append(p.seen.steppedDown, time.Now())
	p.mu.Unlock()
	p.cancel()
}

func (p *part) quit() {
	p.cancel()
	<-p.done
}

func newPart(t *testing.T, name string, change ...func(*part)) (*part, context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	for _, f := range change {
		f(p)
	}
	t.Cleanup(p.quit)
	return p, ctx
}

func bubbleClock() *k8sleaderelection.Clock {
	epoch := time.Now()
	return k8sleaderelection.NewClock(func() int64 { return int64(time.Since(epoch)) })
}

func stableIsDefault() k8sleaderelection.DefaultRevision {
	return k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"}
}

// old is a replica of an earlier version: it acts while it holds the one lock.
func old(t *testing.T, store *locktest.Store, name string, change ...func(*part)) *part {
	p, ctx := newPart(t, name, change...)
	lock := store.Lock(name, "stable")
	p.client = lock.Client
	p.client.SetFault(p.faults)
	e, err := k8sleaderelection.NewLeaderElector(k8sleaderelection.LeaderElectionConfig{
		Lock: lock.Locker, LeaseDuration: oldLease, RenewDeadline: oldRenew, RetryPeriod: oldRetry,
		ReleaseOnCancel: true, Ranked: true, RunFunctions: []func(context.Context) error{p.work},
		Clock: bubbleClock(), Logger: slog.New(slog.DiscardHandler), DefaultRevision: stableIsDefault,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = e.Campaign(ctx)
	}()
	return p
}

// successor is a leader of an election that has a predecessor.
func successor(t *testing.T, store *locktest.Store, name string, change ...func(*part)) *part {
	p, ctx := newPart(t, name, change...)
	lock := store.Lock(name, "canary")
	p.client = lock.Client
	p.client.SetFault(p.faults)
	config := successorOf(lock)
	config.OnStuckDrain, config.Gate, config.DefaultRevision = p.stepDown, p, stableIsDefault
	k, err := newPredecessorLock(config, p.work, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		if err := k.run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return p
}

// Set and Drain are a gate's, of a successor.
func (p *part) Set(_ k8sleaderelection.Term, end k8sleaderelection.Validity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.bound = end
}

func (p *part) Drain() {}

// successorOf keeps that lock as a predecessor.
func successorOf(lock *locktest.Lock) k8sleaderelection.LeaderElectionConfig {
	return k8sleaderelection.LeaderElectionConfig{
		Lock: lock.Locker, LeaseDuration: oldLease, RenewDeadline: oldRenew, RetryPeriod: oldRetry,
		MaxClockDrift: 1e-9, // for a drain limit that is the rest of the lease
		Clock:         bubbleClock(), Logger: slog.New(slog.DiscardHandler),
	}
}

func passes(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	synctest.Test(t, func(t *testing.T) { f(t, locktest.NewStore(locktest.ConfigMap)) })
}

func TestSuccessorsWaitForTheOldLeaderAndThenShutOutOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := old(t, store, "a")
		passes(time.Second)
		s1, s2 := successor(t, store, "s1"), successor(t, store, "s2")
		passes(2 * time.Minute)
		if !a.works() || s1.works() || s2.works() {
			t.Fatalf("old %v, new %v and %v", a.works(), s1.works(), s2.works())
		}
		a.drain = 3 * time.Second
		a.quit()
		passes(2 * time.Second)
		if !s1.works() || !s2.works() {
			t.Fatalf("the old leader is gone: new %v and %v", s1.works(), s2.works())
		}
		if s1.saw().started.Before(a.saw().stopped) || s2.saw().started.Before(a.saw().stopped) {
			t.Error("a successor started before the old leader's function had returned")
		}
		b := old(t, store, "b")
		passes(2 * time.Minute)
		s1.quit()
		passes(2 * time.Minute)
		if b.works() || !s2.works() {
			t.Fatalf("an old replica works %v beside a successor that works %v", b.works(), s2.works())
		}
		s2.drain = 4 * time.Second
		s2.quit()
		last := s2.saw().stopped
		passes(oldLease)
		if !b.works() || b.saw().started.Before(last) {
			t.Errorf("the way back: works %v, from %v on, the last successor stopped at %v", b.works(), b.saw().started, last)
		}
	})
}

func TestSuccessorKeepsTheLockWhileItDrains(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Second)
		b := old(t, store, "b")
		s.drain = 2 * oldLease
		s.quit()
		if b.works() {
			t.Fatal("an old replica works while the successor's function has not returned")
		}
		passes(oldLease + time.Second)
		if !b.works() {
			t.Error("and not after")
		}
	})
}

func TestSuccessorStopsWhenTheLockIsLost(t *testing.T) {
	for name, lose := range map[string]func(store *locktest.Store){
		"taken by an istiod": func(store *locktest.Store) {
			store.Put("istiod", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "istiod", HolderKey: "stable", LeaseDurationSeconds: 30, LeaderTransitions: 9})
		},
		"deleted":    func(store *locktest.Store) { store.Delete() },
		"unreadable": func(store *locktest.Store) { store.Corrupt() },
		"taken by an istiod under the successors' name": func(store *locktest.Store) {
			store.Put("istiod", k8sresourcelock.LeaderElectionRecord{HolderIdentity: k8sresourcelock.Successors, LeaseDurationSeconds: 30, LeaderTransitions: 9})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				s := successor(t, store, "s")
				passes(time.Minute)
				first := s.saw().started
				if !s.works() {
					t.Fatal("does not work")
				}
				lose(store)
				synctest.Wait()
				if s.works() && s.saw().started == first {
					t.Fatal("goes on")
				}
				passes(2 * oldLease)
				if !s.works() {
					t.Error("does not work again after two leases without a sign of anybody")
				}
			})
		})
	}
}

// The term of the election's own lock goes on when the predecessor's is lost, so that it has to be
// ended for functions that do not return: nobody else would report them.
func TestFunctionsThatOutliveThePredecessorsLockEndTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Minute)
		s.drain = 10 * oldLease
		lost := time.Now()
		store.Put("istiod", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "istiod", HolderKey: "stable", LeaseDurationSeconds: 30, LeaderTransitions: 9})
		passes(oldLease)
		if len(s.saw().steppedDown) != 1 || s.saw().steppedDown[0].Sub(lost).Round(time.Second) != oldLease-oldRenew || !s.works() {
			t.Errorf("stepped down at %v, the lock was lost at %v, works %v", s.saw().steppedDown, lost, s.works())
		}
	})
}

// Somebody has taken away what says that the lock is kept for successors. One of them puts it
// back, and the other must not wait for the first to stop.
func TestBothRevisionsComeBackAfterTheNoteWasTakenAway(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		one, other := successor(t, store, "one"), successor(t, store, "other")
		passes(2 * oldLease)
		if !one.works() || !other.works() {
			t.Fatalf("work: %v and %v", one.works(), other.works())
		}
		store.Put("istiod", k8sresourcelock.LeaderElectionRecord{HolderIdentity: k8sresourcelock.Successors, LeaseDurationSeconds: 30, LeaderTransitions: 9})
		passes(3 * oldLease)
		if !one.works() || !other.works() {
			t.Errorf("work: %v and %v", one.works(), other.works())
		}
	})
}

func TestSuccessorStopsAtTheEndOfItsCover(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Second)
		b := old(t, store, "b")
		passes(time.Minute)
		s.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		s.client.MuteWatches(true)
		last := store.Snapshot().Record.RenewTime.Time
		passes(oldRenew)
		if s.works() || s.saw().bound != (k8sleaderelection.Validity{}) {
			t.Errorf("works %v, the gate's bound %v", s.works(), s.saw().bound)
		}
		passes(oldLease)
		if !b.works() || b.saw().started.Before(last.Add(oldLease)) {
			t.Errorf("the old replica works %v, from %v on; the last write %v", b.works(), b.saw().started, last)
		}
	})
}

func TestSuccessorMeetsAnEvidentOldLeader(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := old(t, store, "a")
		passes(time.Minute)
		// Cut off, it acts until its cover ends; its lease is waited for.
		a.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		a.client.MuteWatches(true)
		s := successor(t, store, "s")
		passes(2 * oldLease)
		if !s.works() || s.saw().started.Before(a.saw().stopped) {
			t.Errorf("works %v since %v; the old leader stopped at %v", s.works(), s.saw().started, a.saw().stopped)
		}
	})
}

// A restore puts a kept record back beneath an old leader that is cut off: it acts until the end
// of its cover, and drains.
func TestARestoredKeptLockDoesNotEndTheOldLeader(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		first := successor(t, store, "first")
		passes(time.Second)
		kept := store.Backup()
		first.quit()
		a := old(t, store, "a")
		passes(2 * oldLease)
		s := successor(t, store, "s")
		passes(time.Minute)
		if !a.works() || s.works() {
			t.Fatalf("before the restore: old %v, new %v", a.works(), s.works())
		}
		a.drain = oldLease - oldRenew - time.Second // as long as it may
		a.client.MuteWatches(true)
		a.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		store.Restore(kept)
		s.client.ExpireWatches() // and that of the old leader has it not yet
		passes(2 * oldLease)
		if a.works() || !s.works() {
			t.Fatalf("after the restore: old %v, new %v", a.works(), s.works())
		}
		if s.saw().started.Before(a.saw().stopped) {
			t.Errorf("the successor started %v before the old leader's function had returned", a.saw().stopped.Sub(s.saw().started))
		}
	})
}
