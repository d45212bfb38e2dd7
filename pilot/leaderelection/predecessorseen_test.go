package leaderelection

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// withPredecessor has the timing of those who hold the predecessor's lock.
func withPredecessor(c *Config) {
	c.Predecessor = &Predecessor{Name: locktest.Name, Lock: ConfigMapLock}
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = oldLease, oldRenew, oldRetry
}

// besideAnOldLeader has a follower of an election whose leader knows no predecessor, and a replica of an earlier version which
// leads by the predecessor's lock. kept is that lock as it was before, kept by successors.
func besideAnOldLeader(t *testing.T, s *lockServer) (leader, follower *candidate, a *part, kept locktest.Backup) {
	t.Helper()
	s.leases = locktest.NewStore(locktest.Lease) // with versions of its own, which do not go back with the other's
	first := successor(t, s.objects, "first")
	passes(time.Second)
	kept = s.objects.Backup()
	first.quit()
	a = old(t, s.objects, "a")
	passes(2 * oldLease)
	leader = s.candidate(t, "leader", withPredecessor, func(c *Config) { c.Predecessor = nil }).starts(t)
	passes(time.Second)
	follower = s.candidate(t, "follower", withPredecessor)
	follower.AddRunContext(follower.work)
	follower.starts(t)
	passes(2 * oldLease)
	if !a.works() || !leader.IsLeader() || follower.IsLeader() || follower.Status().Phase != "following" {
		t.Fatalf("the old replica works %v, the leader leads %v, the follower: %+v", a.works(), leader.IsLeader(), follower.Status())
	}
	return leader, follower, a, kept
}

// A follower has seen a replica of an earlier version lead. A restore puts a record back that is kept by successors, and then
// it comes to lead its own election, while the old replica, which is cut off, has not seen what happened.
func TestAFollowerKnowsWhoLedByThePredecessorsLock(t *testing.T) {
	for name, sees := range map[string]bool{"sees the restore": true, "sees what came of it when it leads": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *lockServer) {
				leader, follower, a, kept := besideAnOldLeader(t, s)
				cutOff(a)
				s.objects.Restore(kept)
				if sees {
					follower.old.ExpireWatches()
					passes(time.Second)
				}
				if err := leader.quits(); err != nil {
					t.Fatal(err)
				}
				follower.startsAfter(t, a)
			})
		})
	}
}

// cutOff has an old leader act for as long as it may.
func cutOff(a *part) {
	a.drain = oldLease - oldRenew - time.Second
	a.client.MuteWatches(true)
	a.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
}

// startsAfter wants a candidate that leads from now on to wait until an old leader has stopped, and no longer than it must.
func (a *candidate) startsAfter(t *testing.T, old *part) {
	t.Helper()
	passes(time.Second)
	if !old.works() || a.works() || !a.Status().Waiting {
		t.Errorf("beside an old leader that works %v: %+v", old.works(), a.Status())
	}
	for old.works() {
		if a.works() {
			t.Fatal("it works while the old leader's function has not returned")
		}
		passes(time.Second)
	}
	if passes(oldLease); !a.works() {
		t.Errorf("it does not work after that: %+v", a.Status())
	}
}

// One that has led before, and has kept the predecessor's lock, looks on again from the end of its term.
func TestAFormerLeaderKnowsWhoLedByThePredecessorsLock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		s.leases = locktest.NewStore(locktest.Lease)
		former := s.candidate(t, "former", withPredecessor)
		former.AddRunContext(former.work)
		former.starts(t)
		passes(time.Minute)
		if !former.works() {
			t.Fatalf("it does not work: %+v", former.Status())
		}
		kept := s.objects.Backup()
		leader := s.candidate(t, "leader", withPredecessor, func(c *Config) { c.Predecessor = nil }).starts(t)
		passes(time.Second)
		former.StepDown()
		a := old(t, s.objects, "a")
		passes(3 * oldLease)
		if !a.works() || !leader.IsLeader() || former.works() {
			t.Fatalf("the old replica works %v, the leader leads %v, the former one works %v", a.works(), leader.IsLeader(), former.works())
		}
		cutOff(a)
		s.objects.Restore(kept)
		if err := leader.quits(); err != nil {
			t.Fatal(err)
		}
		former.startsAfter(t, a)
	})
}

// To look on costs a watch and what a candidate reads when it begins, and no line: whom it waits for is told when it leads.
func TestWhatAFollowersLookAtThePredecessorsLockCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		leader, follower, _, _ := besideAnOldLeader(t, s)
		before := follower.old.Requests()
		if passes(5 * oldLease); !maps.Equal(follower.old.Requests(), before) || before[locktest.Watch] != 1 || before[locktest.Get] > 2 || len(before) != 2 {
			t.Errorf("a follower sent %v, and then %v", before, follower.old.Requests())
		}
		if n := leader.old.Requests(); len(n) != 0 {
			t.Errorf("without a predecessor: %v", n)
		}
		const waits, phase = "waiting for the predecessor's lock", "phase changed"
		if follower.log.count(waits) != 0 || follower.log.count(phase) != 0 {
			t.Errorf("a follower said:\n%s", follower.log.text.String())
		}
		if err := leader.quits(); err != nil {
			t.Fatal(err)
		}
		if passes(oldLease); follower.log.count(waits) != 1 || follower.log.count(phase) != 1 {
			t.Errorf("a leader that waits said:\n%s", follower.log.text.String())
		}
	})
}

// Functions that outstay their limit end after the election's run has: then nobody looks at the lock any more.
func TestNobodyLooksOnAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		a := s.candidate(t, "a", withPredecessor, func(c *Config) { c.StopLimit = 5 * time.Second })
		returned := make(chan struct{})
		a.AddRunContext(func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(time.Minute)
			close(returned)
			return nil
		})
		a.starts(t)
		passes(time.Second)
		if err := a.quits(); !errors.Is(err, k8sleaderelection.ErrStuckDrain) {
			t.Fatalf("it ended with %v", err)
		}
		before := a.old.Requests()
		<-returned
		if passes(oldLease); !maps.Equal(a.old.Requests(), before) {
			t.Errorf("sent %v, before %v", a.old.Requests(), before)
		}
	})
}
