package k8sleaderelection_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// What follows are defects that istiod's or client-go's electors have or had. That they
// show them in the same situations is checked in tests/peers/interop.

// stranger is a record of a holder that is not there.
func stranger(transitions int) k8sresourcelock.LeaderElectionRecord {
	now := metav1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: "stranger", HolderKey: "stable", LeaseDurationSeconds: int(lease.Seconds()),
		AcquireTime: now, RenewTime: now, LeaderTransitions: transitions,
	}
}

// TestReleaseLeavesANewHoldersLock: a process that slept does not know that its lock was
// taken, and is told to stop before it could find out.
func TestReleaseLeavesANewHoldersLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute + time.Second)
		a.lock.MuteWatches(true)
		store.Put("stranger", stranger(1))
		if !a.isLive() {
			t.Fatal("a knows already")
		}
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		if r := record(store); r != stranger(1) && (r.HolderIdentity != "stranger" || r.LeaseDurationSeconds != 30) {
			t.Errorf("a's release left %+v", r)
		}
	})
}

// TestALeaderThatSeesAnotherStopsAtOnce, by its watch or, without one, by the conflict
// of its next renewal; not at its deadline.
func TestALeaderThatSeesAnotherStopsAtOnce(t *testing.T) {
	for name, deaf := range map[string]bool{"watching": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				a := enter(t, store, "a")
				pass(time.Minute + time.Second)
				a.lock.MuteWatches(deaf)
				taken := time.Now()
				store.Put("stranger", stranger(1))
				pass(retry)
				if a.isLive() {
					t.Fatal("a works on")
				}
				if d := a.lastStop().Sub(taken); !deaf && d != 0 {
					t.Errorf("a stopped %v after its watch had shown another holder", d)
				}
			})
		})
	}
}

// TestALateReplyDoesNotStretchTheCover: others count the lease from when the renewal was stored.
func TestALateReplyDoesNotStretchTheCover(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute + time.Second)
		const late = 3 * time.Second // less than the call's own deadline
		a.lock.FailNext(locktest.Update, locktest.Fault{After: late})
		before := record(store).RenewTime
		var stored time.Time
		for stored.IsZero() {
			pass(10 * time.Millisecond)
			if now := record(store).RenewTime; !now.Equal(&before) {
				stored = time.Now()
			}
		}
		pass(late)
		a.cut(true)
		pass(renew - late)
		if a.isLive() || a.IsLeader() {
			t.Fatal("a acts beyond its cover, which counts from when the renewal was sent")
		}
		if d := a.lastStop().Sub(stored); d > renew {
			t.Errorf("a stopped %v after its last renewal was stored", d)
		}
	})
}

// TestLosingAndRegainingBetweenRenewalsIsTwoTerms, even for a candidate that has not seen the loss.
func TestLosingAndRegainingBetweenRenewalsIsTwoTerms(t *testing.T) {
	for name, deaf := range map[string]bool{"watching": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				a := enter(t, store, "a")
				pass(time.Minute + time.Second)
				first := a.Status().Term
				a.lock.MuteWatches(deaf)
				store.Put("stranger", stranger(1))
				released := stranger(1)
				released.HolderIdentity, released.HolderKey, released.LeaseDurationSeconds = "", "", 1
				store.Put("stranger", released)
				pass(2 * lease)
				second := a.Status().Term
				if !a.isLive() || a.terms() != 2 || second.Transitions != 2 || second.Token <= first.Token {
					t.Fatalf("live %v, %d terms, %+v then %+v", a.isLive(), a.terms(), first, second)
				}
				if a.lastStart().Before(a.lastStop()) {
					t.Error("the second term began before the first had ended")
				}
			})
		})
	}
}

// TestAMissingHolderKeyStartsNoStealing: a hand removes the key from beside each
// record. Equals must not take it for a lower rank, and take the lock from each other
// for ever.
func TestAMissingHolderKeyStartsNoStealing(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		if store.Kind() != locktest.Lease {
			return // a ConfigMap has the key inside its record
		}
		a := enterRanked(t, store, "a", "stable", "stable")
		pass(time.Second)
		b := enterRanked(t, store, "b", "stable", "stable")
		for range 40 {
			store.Annotate(k8sresourcelock.LeaseHolderKey, "")
			pass(time.Second)
		}
		if !a.isLive() || b.isLive() || a.terms() != 1 || record(store).LeaderTransitions != 0 {
			t.Errorf("a live %v in its term %d, b live %v, record %+v\n%s%s", a.isLive(), a.terms(), b.isLive(), record(store), a.logged(), b.logged())
		}
	})
}
