package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// An etcd that was restored from a backup gives its versions out a second time: a watch from a
// version of the future that was lost is accepted, and silent. Whoever has read that the store
// went back begins its watch anew, and hears of a release at once again.
func TestAWatchBeginsAnewWhenTheStoreHasGoneBack(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		backup := store.Backup()
		pass(20 * time.Minute) // of renewals, which are lost
		store.Restore(backup)
		pass(2 * lease)
		leader, other := a, b
		if b.isLive() {
			leader, other = b, a
		}
		reads := other.lock.Requests()[locktest.Get]
		leader.quit()
		synctest.Wait()
		if n := other.lock.Requests()[locktest.Get] - reads; !other.isLive() || !other.lastStart().Equal(leader.lastStop()) || n != 0 {
			t.Errorf("the other one leads %v, after %d reads", other.isLive(), n)
		}
	})
}

// OnStartedLeading runs beside the other functions of a term, and ends with it.
func TestACallbackIsAFunctionOfTheTerm(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		var began, ended []le.Term
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnStartedLeading = func(ctx context.Context) {
				term, _ := le.TermFromContext(ctx)
				began = append(began, term)
				<-ctx.Done()
				after(3 * time.Second)
				ended = append(ended, term)
			}
		})
		pass(time.Minute)
		term := a.Status().Term
		if !a.isLive() || len(began) != 1 || began[0] != term || len(ended) != 0 {
			t.Fatalf("the function runs %v, the callback began in %+v, ended in %+v", a.isLive(), began, ended)
		}
		stopped := time.Now()
		if err := a.quit(); err != nil || len(ended) != 1 || time.Since(stopped) != 3*time.Second {
			t.Errorf("ended after %v with %v, the callback in %+v", time.Since(stopped), err, ended)
		}
	})
}

// What a function says after it was told to stop is no failure.
func TestAnErrorAfterTheStopIsNone(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("interrupted")
			}}
		})
		pass(time.Minute)
		if err := a.quit(); err != nil || strings.Contains(a.logged(), "interrupted") {
			t.Errorf("%v\n%s", err, a.logged())
		}
	})
}

// A lock that was deleted is not a store that went back: its watch goes on.
func TestADeletedLockNeedsNoNewWatch(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute)
		a.lock.MuteWatches(true)
		before := a.lock.Requests()[locktest.Watch]
		store.Delete()
		pass(lease)
		if n := a.lock.Requests()[locktest.Watch] - before; n != 0 || !store.Snapshot().Exists {
			t.Errorf("%d new watches", n)
		}
		a.lock.MuteWatches(false)
	})
}

// A KeyComparison that says no takes nothing from a holder.
func TestKeyComparisonThatSaysNo(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute)
		enter(t, store, "b", func(c *le.LeaderElectionConfig) { c.KeyComparison = func(string) bool { return false } })
		pass(10 * time.Minute)
		if !a.isLive() || a.terms() != 1 {
			t.Errorf("a leads %v, in its term %d", a.isLive(), a.terms())
		}
	})
}
