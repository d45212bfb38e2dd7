package leaderelection

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// replica starts a replica of step 1 (only the ConfigMap), 2 (the ConfigMap is held), or 3 (only the Lease).
func (s *lockServer) replica(t *testing.T, step int, name string, change ...func(*Config)) *candidate {
	t.Helper()
	a := s.prepared(t, step, name, change...)
	a.AddRunContext(a.work)
	return a.starts(t)
}

// prepared returns a replica without a run function that does not run yet.
func (s *lockServer) prepared(t *testing.T, step int, name string, change ...func(*Config)) *candidate {
	t.Helper()
	steps := map[int]func(*Config){
		1: func(c *Config) { c.Lock = LockTypeConfigMap },
		2: func(c *Config) {
			c.Predecessor = &Predecessor{Name: locktest.Name, Lock: LockTypeConfigMap, Hold: true}
		},
		3: func(*Config) {},
	}
	return s.candidate(t, name, append([]func(*Config){steps[step]}, change...)...)
}

func (s *lockServer) holders() string {
	return s.objects.Snapshot().Record.HolderIdentity + "," + s.leases.Snapshot().Record.HolderIdentity
}

// A rollout through all steps and back. In each step the new replica leads as soon as the old one has released its locks.
func TestHold_RolloutAndRollback(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		holders := map[int]func(name string) string{
			1: func(name string) string { return name + "," },
			2: func(name string) string { return name + "," + name },
			3: func(name string) string { return "," + name },
		}
		var all []*candidate
		var leader *candidate
		for i, step := range []int{1, 1, 2, 2, 3, 3, 2, 2, 1} {
			next := s.replica(t, step, fmt.Sprintf("replica-%d", i))
			passes(time.Second)
			if leader != nil {
				if next.Live() || next.admits(t) || !leader.Live() {
					t.Fatalf("replica %d of step %d: leads although the last one does", i, step)
				}
				if id, key := next.Leader(); id != leader.cfg.Identity || key != "stable" {
					t.Errorf("replica %d of step %d reports leader %q, key %q", i, step, id, key)
				}
				leader.Stop(t)
				passes(time.Second)
			}
			if status := next.Status(); !next.Live() || !next.admits(t) || !next.IsLeader() || status.Phase != "leading" || status.ValidFor <= 0 {
				t.Fatalf("replica %d of step %d: %+v\n%s", i, step, status, next.log.String())
			}
			if want := holders[step](next.cfg.Identity); s.holders() != want {
				t.Errorf("replica %d of step %d leads with holders %q, want %q", i, step, s.holders(), want)
			}
			leader = next
			all = append(all, next)
		}
		lives.Apart(t, all...)
		for i := range all[1:] {
			if all[i+1].token <= all[i].token {
				t.Errorf("replica %d has token %d after %d", i+1, all[i+1].token, all[i].token)
			}
		}
	})
}

// While a replica of step 3 leads, a replica of step 2 holds the old lock and does not lead.
func TestHold_NewLockIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		last := s.replica(t, 3, "last")
		passes(time.Second)
		a := s.replica(t, 2, "a")
		b := s.replica(t, 2, "b")
		passes(10 * playLease)
		if !last.Live() || a.Live() || b.Live() || a.IsLeader() || a.admits(t) || !strings.HasSuffix(s.holders(), ",last") {
			t.Fatalf("holders %s, a leads %v, b leads %v", s.holders(), a.Live(), b.Live())
		}
		for _, c := range []*candidate{a, b} {
			if id, _ := c.Leader(); id != "last" || c.Status().Phase != "following" || c.Status().Term != (k8sleaderelection.Term{}) {
				t.Errorf("%s reports leader %q: %+v", c.cfg.Identity, id, c.Status())
			}
		}
		last.Stop(t)
		passes(100 * time.Millisecond)
		if a.Live() == b.Live() {
			t.Errorf("after the release, a leads %v, b leads %v", a.Live(), b.Live())
		}
	})
}

// The locks are released in the reverse order, after the drain. A handover passes the old lock, and the nominee acquires the new
// lock without a delay.
func TestHold_Handover(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		watcher := newWatcher("stable")
		on := func(revision string) func(*Config) {
			return func(c *Config) {
				c.Revision = revision
				c.DefaultWatcher = watcher
			}
		}
		a := s.replica(t, 2, "a", on("stable"))
		passes(time.Second)
		b := s.replica(t, 2, "b", on("canary"))
		passes(time.Second)
		for _, to := range []*candidate{b, a, b, a} {
			from := b
			if to == b {
				from = a
			}
			watcher.Set(to.cfg.Revision)
			passes(100 * time.Millisecond)
			if !to.Live() || from.Live() || s.holders() != to.cfg.Identity+","+to.cfg.Identity {
				t.Fatalf("%s leads %v, holders %s\n%s", to.cfg.Identity, to.Live(), s.holders(), to.log.String())
			}
			released := last(s.leases.History(), func(e locktest.Event) bool { return e.Snapshot.Record.HolderIdentity == "" })
			handed := last(s.objects.History(), func(e locktest.Event) bool { return e.By == from.cfg.Identity && gaveAway(e, nil) })
			if released.At.Before(from.Last().To) || released.Version > handed.Version {
				t.Errorf("drained at %v, released the new lock at %v (%d), handed the old one over at %v (%d)",
					from.Last().To, released.At, released.Version, handed.At, handed.Version)
			}
		}
		lives.Apart(t, a, b)
	})
}

// last returns the last event for which is returns true.
func last(events []locktest.Event, is func(locktest.Event) bool) (found locktest.Event) {
	for _, e := range events {
		if is(e) {
			found = e
		}
	}
	return found
}

// The gate is open only while both validities last, and either loss ends the term.
func TestHold_EitherLockIsLost(t *testing.T) {
	for name, lose := range map[string]func(s *lockServer, a *candidate){
		"old lock cannot be written": func(_ *lockServer, a *candidate) { a.old.Forbid(locktest.Update) },
		"new lock cannot be written": func(_ *lockServer, a *candidate) { a.lease.Forbid(locktest.Update, locktest.Create) },
		"old lock is stolen":         func(s *lockServer, _ *candidate) { s.steal(s.objects) },
		"new lock is stolen":         func(s *lockServer, _ *candidate) { s.steal(s.leases) },
		"old lock is deleted":        func(s *lockServer, _ *candidate) { s.objects.Delete() },
		"new lock is deleted":        func(s *lockServer, _ *candidate) { s.leases.Delete() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *lockServer) {
				a := s.replica(t, 2, "a")
				passes(time.Second)
				b := s.replica(t, 2, "b")
				passes(time.Second)
				lose(s, a)
				passes(playRenew)
				if len(a.Spans()) == 1 && a.Live() {
					t.Fatalf("the term continues: %+v", a.Status())
				}
				passes(5 * playLease)
				if a.Live() == b.Live() {
					t.Errorf("a leads %v, b leads %v\n%s\n%s", a.Live(), b.Live(), a.log.String(), b.log.String())
				}
				lives.Apart(t, a, b)
			})
		})
	}
}

// steal writes the holder that another elector would write.
func (s *lockServer) steal(store *locktest.Store) {
	record := store.Snapshot().Record
	record.HolderIdentity = "peer"
	record.LeaderTransitions++
	store.Put("peer", record)
}

// The gate closes at the end of the earlier validity, although the other lock is renewed and the functions have not returned.
func TestHold_GateOfEarlierValidity(t *testing.T) {
	for _, object := range []string{"ConfigMap", "Lease"} {
		inBubble(t, func(t *testing.T, s *lockServer) {
			a := s.prepared(t, 2, "a", func(c *Config) { c.OnStuckDrain = func() {} })
			release := make(chan struct{})
			a.AddRunContext(func(context.Context) error { <-release; return nil })
			a.starts(t)
			passes(time.Second)
			if !a.admits(t) || a.Status().Term == (k8sleaderelection.Term{}) {
				t.Fatalf("does not lead: %+v", a.Status())
			}
			client := map[string]*apiserver.Client{"ConfigMap": a.old, "Lease": a.lease}[object]
			client.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: locktest.ErrUnavailable} })
			passes(playRenew)
			if a.admits(t) || a.IsLeader() || a.Status().Leading {
				t.Errorf("%s: the gate is open after the validity", object)
			}
			if err := a.Healthz().Check(nil); err != nil {
				t.Errorf("%s: unhealthy before the lease has expired: %v", object, err)
			}
			passes(playLease + defaultHealthTolerance)
			if a.Healthz().Check(nil) == nil {
				t.Errorf("%s: healthy, although run functions continue after the lease", object)
			}
			close(release)
			passes(time.Second)
		})
	}
}

// After a suspend, the inner elector may acquire its lock before the outer one sees the end of its validity. Its run functions wait. They
// start if a late answer shows that the outer term continues.
func TestHold_OuterValidityEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.prepared(t, 2, "a")
		var starts atomic.Int32
		a.AddRunContext(func(ctx context.Context) error {
			starts.Add(1)
			<-ctx.Done()
			return nil
		})
		harness.Must(t, a.connect(playKube{configMaps: a.old, leases: a.lease}))
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		work := func(ctx context.Context) {
			all.Go(func() {
				if err := a.held.Load().work(ctx); err != nil || ctx.Err() == nil {
					t.Errorf("work ends with %v before its context", err)
				}
			})
			passes(time.Second)
			if n := starts.Load(); n != 0 {
				t.Fatalf("%d run functions start outside the validity of the first lock", n)
			}
		}
		lost, lose := context.WithCancel(ctx)
		work(lost)
		lose()
		all.Wait()
		work(ctx)
		all.Go(func() { _ = a.held.Load().run(ctx) })
		passes(100 * time.Millisecond)
		if n := starts.Load(); n != 2 { // of the second call, and of the inner elector
			t.Errorf("%d run functions start in the outer term", n)
		}
		cancel()
		all.Wait()
	})
}

// A killed leader is followed after one lease, not two: the candidates observe both locks.
func TestHold_CrashCostsOneLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.replica(t, 2, "a")
		passes(time.Second)
		b := s.replica(t, 2, "b")
		passes(time.Second)
		for _, c := range []*apiserver.Client{a.old, a.lease} {
			c.On(func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: locktest.ErrUnavailable} })
		}
		passes(playLease + playRetry)
		if !b.Live() || a.Live() {
			t.Errorf("b leads %v after a lease", b.Live())
		}
		lives.Apart(t, a, b)
	})
}

// A failed run function lets another replica lead.
func TestHold_RunFunctionFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.prepared(t, 2, "a")
		fail := make(chan struct{})
		a.AddRunContext(func(ctx context.Context) error {
			select {
			case <-fail:
				return errPlay
			case <-ctx.Done():
				return nil
			}
		})
		a.starts(t)
		passes(time.Second)
		b := s.replica(t, 2, "b")
		passes(time.Second)
		close(fail)
		passes(100 * time.Millisecond)
		if !b.Live() || a.IsLeader() || !a.Status().BackingOff {
			t.Errorf("b leads %v; %+v", b.Live(), a.Status())
		}
		b.StepDown()
		passes(100 * time.Millisecond)
		if b.Live() || !b.Status().BackingOff {
			t.Error("continues after StepDown")
		}
	})
}

// A replica that must not write the Lease never takes the old lock, and no leader drains for it.
func TestHold_LeaseForbidden(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		watcher := newWatcher("canary")
		poor := s.prepared(t, 2, "poor", func(c *Config) {
			c.Revision = "canary"
			c.DefaultWatcher = watcher
		})
		poor.AddRunContext(poor.work)
		poor.lease.Forbid(locktest.Create, locktest.Update)
		poor.starts(t)
		passes(playLease)
		if s.objects.Snapshot().Exists {
			t.Fatalf("it holds the old lock: %s", s.holders())
		}
		a := s.replica(t, 2, "a", func(c *Config) { c.DefaultWatcher = watcher })
		passes(10 * playLease)
		if !a.Live() || len(a.Spans()) != 1 || poor.Live() || poor.log.Count("dry run of an acquisition") == 0 {
			t.Errorf("a led %d times, poor leads %v\n%s", len(a.Spans()), poor.Live(), poor.log.String())
		}
		poor.lease.Allow(locktest.Create, locktest.Update)
		passes(2 * playRetry)
		if a.Live() || !poor.Live() {
			t.Errorf("after the right was granted: a leads %v, poor leads %v", a.Live(), poor.Live())
		}
		poor.lease.Forbid(locktest.Create, locktest.Update)
		passes(3 * playLease)
		if !a.Live() || poor.Live() {
			t.Errorf("after the right was withdrawn: a leads %v, poor leads %v\n%s", a.Live(), poor.Live(), poor.log.String())
		}
		poor.lease.Allow(locktest.Create, locktest.Update)
		passes(10 * playLease)
		if a.Live() || !poor.Live() {
			t.Errorf("after the right was granted again: a leads %v, poor leads %v\n%s", a.Live(), poor.Live(), poor.log.String())
		}
		lives.Apart(t, a, poor)
	})
}

// A replica of step 2 leads although each answer needs longer than a fitness check.
func TestHold_SlowServer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.prepared(t, 2, "a")
		a.AddRunContext(a.work)
		late := func(apiserver.Request) apiserver.Fault { return apiserver.Fault{After: playRetry * 11 / 10} }
		a.lease.On(late)
		a.starts(t)
		passes(playLease)
		if !a.Live() {
			t.Errorf("holders %q\n%s", s.holders(), a.log.String())
		}
	})
}

// Operator commands are commands for the old lock.
func TestHold_OperatorCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.replica(t, 2, "a")
		passes(time.Second)
		b := s.replica(t, 2, "b")
		passes(time.Second)
		o, err := a.Operator("alice")
		harness.Must(t, err)
		harness.Must(t, o.Transfer(t.Context(), "b", "stable", "", time.Minute))
		passes(100 * time.Millisecond)
		if !b.Live() || a.Live() || s.objects.Snapshot().Annotations[record.HoldAnnotation] == "" {
			t.Errorf("a leads %v, b leads %v: %+v", a.Live(), b.Live(), s.objects.Snapshot())
		}
		lives.Apart(t, a, b)
	})
}

// After a rejected renewal, a follower makes one dry run of an acquisition, and the rejection does not end its next term.
func TestHold_RejectedRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.replica(t, 2, "a")
		passes(time.Second)
		b := s.replica(t, 2, "b")
		a.lease.Forbid(locktest.Update)
		passes(2 * playRetry)
		a.StepDown()
		passes(2 * playLease)
		a.lease.Allow(locktest.Update)
		passes(2 * playLease)
		before := a.lease.Counts()[locktest.Update]
		passes(3 * playLease)
		if n := a.lease.Counts()[locktest.Update] - before; n > 0 || !b.Live() {
			t.Errorf("b leads %v, follower a wrote %d times\n%s", b.Live(), n, a.log.String())
		}
		b.Stop(t)
		passes(time.Second)
		if !a.Live() {
			t.Errorf("a does not lead after b ended\n%s", a.log.String())
		}
		lives.Apart(t, a, b)
	})
}

// blockedObserver is an Observer that does not return until it is closed.
type blockedObserver struct {
	*silentObserver
	closed chan struct{}
}

func (b blockedObserver) Phase(_, _, _, _ string)                 { <-b.closed }
func (b blockedObserver) Call(_, _, _, _ string, _ time.Duration) { <-b.closed }

// The two electors of an election wait for each other, and not for an Observer.
func TestHold_BlockedObserver(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		b := blockedObserver{closed: make(chan struct{})}
		a := s.prepared(t, 2, "a", func(c *Config) { c.Observer = b })
		a.AddRunContext(a.work)
		a.starts(t)
		if passes(time.Second); !a.Live() || !a.admits(t) {
			t.Errorf("does not lead: %+v", a.Status())
		}
		a.Cancel()
		if passes(time.Second); a.Live() || s.objects.Snapshot().Record.HolderIdentity != "" || s.leases.Snapshot().Record.HolderIdentity != "" {
			t.Errorf("runs %v; holders %q and %q", a.Live(), s.objects.Snapshot().Record.HolderIdentity, s.leases.Snapshot().Record.HolderIdentity)
		}
		_ = a.Quit()
		close(b.closed)
	})
}

// A replica that cannot read the new lock any more does not keep the old one.
func TestHold_LeaseUnreadable(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		last := s.replica(t, 3, "last")
		passes(time.Second)
		poor := s.replica(t, 2, "poor")
		passes(time.Second)
		a := s.replica(t, 2, "a")
		forbid := func() {
			poor.lease.Forbid(locktest.Get, locktest.Watch, locktest.Create, locktest.Update)
			poor.lease.EndWatches()
			passes(10 * playLease)
		}
		forbid() // while poor holds the old lock
		last.Stop(t)
		if passes(time.Second); !a.Live() {
			t.Fatalf("holders %s\n%s", s.holders(), poor.log.String())
		}
		poor.lease.Allow(locktest.Get, locktest.Watch, locktest.Create, locktest.Update)
		passes(10 * playLease)
		forbid() // while poor follows
		a.StepDown()
		passes(10 * playLease)
		if !a.Live() || poor.Live() {
			t.Errorf("holders %s: a leads %v, poor leads %v\n%s", s.holders(), a.Live(), poor.Live(), poor.log.String())
		}
		lives.Apart(t, last, a, poor)
	})
}

// A replica that becomes fit and takes over works without waiting for its next fitness check.
func TestHold_BecomesFit(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		watcher := newWatcher("canary")
		follow := func(c *Config) { c.DefaultWatcher = watcher }
		a := s.replica(t, 2, "a", follow)
		passes(time.Second)
		b := s.prepared(t, 2, "b", follow, func(c *Config) { c.Revision = "canary" })
		b.AddRunContext(b.work)
		var fit atomic.Bool
		b.AddFitnessCheck(func(context.Context) error {
			<-time.After(10 * time.Millisecond)
			if !fit.Load() {
				return errPlay
			}
			return nil
		})
		b.starts(t)
		passes(3 * playLease)
		fit.Store(true)
		passes(3 * playLease)
		if !b.Live() {
			t.Fatalf("b does not lead: %s", b.log.String())
		}
		if gap := b.Last().From.Sub(a.Last().To); gap > 100*time.Millisecond {
			t.Errorf("no replica worked for %v", gap)
		}
	})
}
