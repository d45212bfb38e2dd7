package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// istiods is a lock that an istiod holds.
func istiods() k8sresourcelock.LeaderElectionRecord {
	return k8sresourcelock.LeaderElectionRecord{HolderIdentity: "istiod", LeaseDurationSeconds: 30, LeaderTransitions: 4}
}

// keeping runs a successor's part with that work, and gives back how it ends.
func keeping(t *testing.T, ctx context.Context, config k8sleaderelection.LeaderElectionConfig, work func(context.Context) error) (*predecessorLock, <-chan error) {
	t.Helper()
	k, err := newPredecessorLock(config, work, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx) }()
	return k, ended
}

// The lock is kept for as long as the term lasts, also when functions have returned: the election leads, and an old replica
// would act beside what they have set up.
func TestALockIsKeptWhenFunctionsHaveReturned(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		config := successorOf(store.Lock("s", "canary"))
		config.OnStuckDrain = func() { t.Error("it steps down") }
		_, ended := keeping(t, ctx, config, func(context.Context) error { return nil })
		passes(4 * oldLease)
		snap := store.Snapshot()
		if age := time.Since(snap.Record.RenewTime.Time); !snap.KeptForSuccessors() || age > oldRetry+time.Second {
			t.Errorf("kept %v, renewed %v ago", snap.KeptForSuccessors(), age)
		}
		// When the lock is lost, nobody is waited for: it is kept anew, once that is allowed.
		store.Put("istiod", istiods())
		if passes(2 * oldLease); !store.Snapshot().KeptForSuccessors() {
			t.Error("it is not kept again after a loss")
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		before := store.Snapshot().ResourceVersion
		if passes(oldLease); store.Snapshot().ResourceVersion != before {
			t.Error("it writes after its end")
		}
	})
}

// Functions run in the election's own term, by which its gate admits their writes, and what they return ends that.
func TestFunctionsRunInTheElectionsOwnTerm(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		failed := errors.New("failed")
		own := k8sleaderelection.Term{LockUID: "own", Token: 7}
		for range 2 { // the next term begins anew
			began := time.Now()
			_, ended := keeping(t, k8sleaderelection.ContextWithTerm(t.Context(), own), successorOf(store.Lock("s", "canary")), func(ctx context.Context) error {
				if term, _ := k8sleaderelection.TermFromContext(ctx); term != own {
					t.Errorf("the term is %+v", term)
				}
				<-time.After(time.Minute)
				return failed
			})
			if err := <-ended; !errors.Is(err, failed) || time.Since(began) > time.Minute+time.Second {
				t.Errorf("told %v after %v", err, time.Since(began))
			}
		}
	})
}

// Without a watch, a loss shows in the read after a write that met another: functions are stopped then, and what the other
// wrote is left alone.
func TestALossShowsByReading(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		s := successor(t, store, "s")
		passes(time.Minute)
		s.client.MuteWatches(true)
		store.Put("istiod", istiods())
		lost := time.Now()
		passes(oldRetry + time.Second)
		if s.works() || s.saw().stopped.Sub(lost) > oldRetry {
			t.Errorf("works %v, stopped %v after the loss", s.works(), s.saw().stopped.Sub(lost))
		}
		if by := store.Snapshot().Record.HolderIdentity; by != "istiod" {
			t.Errorf("the lock is held by %q", by)
		}
		if passes(2 * oldLease); !s.works() {
			t.Error("it does not come back")
		}
	})
}

// One that waits for the lock ends with its context, and has neither started anything nor opened the gate.
func TestASuccessorThatWaitsEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := old(t, store, "a")
		passes(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		gate := &settings{}
		config := successorOf(store.Lock("s", "canary"))
		config.Gate = gate
		_, ended := keeping(t, ctx, config, func(context.Context) error { t.Error("it works"); return nil })
		passes(oldLease)
		cancel()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
		if gate.opened || !a.works() {
			t.Errorf("the gate was open %v, the old replica works %v", gate.opened, a.works())
		}
	})
}

// The kept lock shows the highest rank, that of the default revision, or its own where none is known; and no mark of a process.
func TestWhichRankAKeptLockShows(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var known atomic.Pointer[k8sleaderelection.DefaultRevision]
		known.Store(&k8sleaderelection.DefaultRevision{})
		config := successorOf(store.Lock("s", "canary"))
		config.DefaultRevision = func() k8sleaderelection.DefaultRevision { return *known.Load() }
		k, _ := keeping(t, t.Context(), config, func(ctx context.Context) error { <-ctx.Done(); return nil })
		passes(time.Second)
		for _, x := range []struct {
			told k8sleaderelection.DefaultRevision
			key  string
		}{
			{k8sleaderelection.DefaultRevision{}, "canary"},
			{k8sleaderelection.DefaultRevision{Synced: true, Revision: "stable"}, "stable"},
			{k8sleaderelection.DefaultRevision{Synced: true}, "canary"},
		} {
			known.Store(&x.told)
			k.elector.Refresh()
			passes(oldRetry + time.Second)
			snap := store.Snapshot()
			if snap.Record.HolderKey != x.key || snap.Record.LeaderTransitions != 0 || snap.Record.LeaseDurationSeconds != int(oldLease/time.Second) {
				t.Errorf("default %+v: %+v", x.told, snap.Record)
			}
			if notes := snap.Notes; len(notes) != 1 || notes[k8sresourcelock.PredecessorAnnotation] != "v1 incumbent-successors 0 s" {
				t.Errorf("its notes are %q", notes)
			}
		}
	})
}

// While somebody of an earlier version may still act, the lock that was won stands there under the winner's name: another
// successor would act at once by one that is kept.
func TestALockIsNotKeptBeforeItMayBeActedBy(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := old(t, store, "a")
		a.drain = oldLease - oldRenew - time.Second
		passes(time.Minute)
		a.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		a.client.MuteWatches(true)
		s := successor(t, store, "s")
		passes(time.Second)
		var holders []string
		for a.works() {
			if by := store.Snapshot().Record.HolderIdentity; !slices.Contains(holders, by) {
				holders = append(holders, by)
			}
			passes(time.Second)
		}
		if slices.Contains(holders, k8sresourcelock.Successors) || s.works() {
			t.Errorf("while the old replica acts the lock is of %q, and a successor works: %v", holders, s.works())
		}
		if passes(oldLease); !s.works() || !store.Snapshot().KeptForSuccessors() {
			t.Errorf("after it: works %v, %+v", s.works(), store.Snapshot().Record)
		}
	})
}

// A successor's part in its election: the kept lock is where and as the configuration says, and the leader's gate opens and
// IsLeader says yes when it has both locks.
func TestAnElectionWithAPredecessor(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		s.objects.Put("istiod", istiods())
		a := s.candidate(t, "a", func(c *Config) {
			c.Predecessor, c.DefaultWatcher = &Predecessor{Name: locktest.Name}, watcher("blue")
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod, c.PeerGrace = 40*time.Second, 20*time.Second, 5*time.Second, 3*time.Second
		})
		a.AddRunContext(a.work)
		a.starts(t)
		passes(42 * time.Second)
		if a.works() || a.IsLeader() || a.admits(t) || !a.Status().Waiting {
			t.Errorf("before: works %v, leads %v, writes pass %v, %+v", a.works(), a.IsLeader(), a.admits(t), a.Status())
		}
		passes(5 * time.Second) // its lease and ours are over, and the grace
		record := s.objects.Snapshot().Record
		if !a.works() || !a.IsLeader() || !a.admits(t) || a.Status().Waiting {
			t.Errorf("after: works %v, leads %v, writes pass %v, %+v", a.works(), a.IsLeader(), a.admits(t), a.Status())
		}
		if record.HolderIdentity != k8sresourcelock.Successors || record.LeaseDurationSeconds != 40 || record.HolderKey != "blue" {
			t.Errorf("the predecessor's lock: %+v", record)
		}
		if err := a.quits(); err != nil || a.works() || a.IsLeader() || a.admits(t) {
			t.Errorf("in the end: %v, works %v, leads %v", err, a.works(), a.IsLeader())
		}
	})
}

// settings is a gate that notes what it is told.
type settings struct {
	term    k8sleaderelection.Term
	end     k8sleaderelection.Validity
	opened  bool
	drained int
}

func (g *settings) Set(term k8sleaderelection.Term, end k8sleaderelection.Validity) {
	g.term, g.end = term, end
	g.opened = g.opened || end != (k8sleaderelection.Validity{})
}
func (g *settings) Drain() { g.drained++ }

// A gate beside a predecessor's lock ends with the earlier cover by each of the clocks, and its term is the election's own.
func TestAGateBesideThePredecessorsLock(t *testing.T) {
	term, other := k8sleaderelection.Term{LockUID: "u", Token: 3}, k8sleaderelection.Term{LockUID: "old", Token: 9}
	own, kept := k8sleaderelection.Validity{Mono: 5, Boot: 20, Wall: 30}, k8sleaderelection.Validity{Mono: 9, Boot: 10, Wall: 31}
	both := k8sleaderelection.Validity{Mono: 5, Boot: 10, Wall: 30}
	var none k8sleaderelection.Validity
	for _, ownFirst := range []bool{true, false} {
		inner := &settings{}
		g := &bothCovers{gate: inner}
		steps := []func(){func() { g.first().Set(term, own) }, func() { g.second().Set(other, kept) }}
		if !ownFirst {
			slices.Reverse(steps)
		}
		if steps[0](); inner.opened {
			t.Errorf("open with one cover: %+v", inner.end)
		}
		if steps[1](); inner.end != both || inner.term != term {
			t.Errorf("with both: %+v of %+v", inner.end, inner.term)
		}
		if g.second().Set(other, none); inner.end != none || inner.term != term {
			t.Errorf("the other cover is over: %+v of %+v", inner.end, inner.term)
		}
		g.second().Set(other, kept)
		if g.first().Set(k8sleaderelection.Term{}, none); inner.end != none || inner.term != (k8sleaderelection.Term{}) {
			t.Errorf("its own is over: %+v of %+v", inner.end, inner.term)
		}
		if g.first().Drain(); inner.drained != 1 {
			t.Error("it does not drain")
		}
	}
}
