package k8sleaderelection_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// Without a watch, a follower polls after RetryPeriod plus jitter. A failed attempt to watch does not delay the poll.
func TestFollowerPolls(t *testing.T) {
	for name, err := range map[string]error{
		"forbidden": apierrors.NewForbidden(leases, locktest.Name, nil),
		"error":     apierrors.NewInternalError(errors.New("etcd")),
	} {
		t.Run(name, func(t *testing.T) {
			forEachLock(t, func(t *testing.T, store *locktest.Store) {
				startCandidate(t, store, "a")
				advance(time.Second)
				b := startCandidate(t, store, "b")
				advance(time.Minute)
				var polls []time.Time
				b.lock.On(func(r apiserver.Request) apiserver.Fault {
					switch r.Verb {
					case locktest.Watch:
						return apiserver.Fault{Err: err}
					case locktest.Get:
						polls = append(polls, time.Now())
					}
					return apiserver.Fault{}
				})
				b.lock.EndWatches()
				advance(40 * retry)
				if n := len(polls); n < 18 || n > 40 { // each pause is 1 to 2.2 RetryPeriods
					t.Fatalf("%d polls in 40 RetryPeriods", n)
				}
				between := map[time.Duration]bool{}
				for i := 1; i < len(polls); i++ {
					between[polls[i].Sub(polls[i-1])] = true
				}
				if len(between) < 3 {
					t.Errorf("no jitter between polls: %v", between)
				}
			})
		})
	}
}

// After etcd was restored from a backup, a watch from a lost version is accepted and shows no events.
func TestWatchRestarts_StoreRestored(t *testing.T) {
	forEachLock(t, func(t *testing.T, store *locktest.Store) {
		a, b := startTwo(t, store)
		backup := store.Backup()
		advance(20 * time.Minute)
		store.Restore(backup)
		advance(2 * lease)
		leader := a
		other := b
		if b.Live() {
			leader = b
			other = a
		}
		reads := other.lock.Counts()[locktest.Get]
		leader.Quit()
		synctest.Wait()
		if n := other.lock.Counts()[locktest.Get] - reads; !other.Live() || !other.Last().From.Equal(leader.Last().To) || n != 0 {
			t.Errorf("the follower leads %v, after %d reads", other.Live(), n)
		}
	})
}

// A deleted lock is not a restored store: the watch continues.
func TestWatchContinues_LockDeleted(t *testing.T) {
	onConfigMap(t, func(t *testing.T, store *locktest.Store) {
		a := startCandidate(t, store, "a")
		advance(time.Minute)
		a.lock.MuteWatches(true)
		before := a.lock.Counts()[locktest.Watch]
		store.Delete()
		advance(lease)
		if n := a.lock.Counts()[locktest.Watch] - before; n != 0 || !store.Snapshot().Exists {
			t.Errorf("%d new watches", n)
		}
		a.lock.MuteWatches(false)
	})
}
