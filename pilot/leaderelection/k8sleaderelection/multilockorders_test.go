package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// bothWays are the locks by which an operator may reach an election on both objects: replicas
// of either neighbouring step know but one.
var bothWays = map[string]func(locktest.Pair) k8sresourcelock.Interface{
	"both":          func(p locktest.Pair) k8sresourcelock.Interface { return p.Lock("operator", "").MultiLock },
	"the primary":   func(p locktest.Pair) k8sresourcelock.Interface { return p.Primary.Lock("operator", "").Locker },
	"the secondary": func(p locktest.Pair) k8sresourcelock.Interface { return p.Secondary.Lock("operator", "").Locker },
}

// playOrders has a leader of the default revision on both objects, a challenger beside it, and
// an operator.
func playOrders(t *testing.T, f func(t *testing.T, pair locktest.Pair, a, b *candidate, way *locktest.PairLock, o admin.Operator)) {
	for name, lock := range bothWays {
		t.Run("by "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pair := locktest.NewPair()
				enterKey := func(identity, key string) (*candidate, *locktest.PairLock) {
					lock := pair.Lock(identity, key)
					c := prepareKey(t, pair.Primary, identity, key, func(c *le.LeaderElectionConfig) { c.Lock, c.Ranked = lock.MultiLock, true })
					c.lock = lock.Primary
					setDefault("stable", c)
					c.start(t)
					return c, lock
				}
				a, way := enterKey("a", "stable")
				pass(time.Second)
				b, _ := enterKey("b", "canary")
				pass(time.Minute)
				f(t, pair, a, b, way, admin.Operator{Lock: lock(pair), Requester: "alice"})
			})
		})
	}
}

func TestResumeEndsAPauseOfBothLocks(t *testing.T) {
	playOrders(t, func(t *testing.T, pair locktest.Pair, a, b *candidate, _ *locktest.PairLock, o admin.Operator) {
		for range 2 {
			if err := o.Pause(t.Context(), "", time.Hour); err != nil {
				t.Fatal(err)
			}
			pass(3 * retry) // by now it stands on both
			if err := o.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Anybody's edit of one of the two must not bring it back.
			if _, both := o.Lock.(*k8sresourcelock.MultiLock); both {
				pair.Primary.Annotate("example.com/n", time.Now().String())
				pair.Secondary.Annotate("example.com/n", time.Now().String())
				pair.Primary.Annotate("example.com/n", "")
			}
			pass(3 * retry)
		}
		setDefault("canary", a, b)
		pass(time.Minute)
		if a.isLive() || !b.isLive() {
			t.Errorf("resumed, and rank does not count: a live %v, b live %v\n%v\n%v", a.isLive(), b.isLive(), pair.Primary.Snapshot().Notes, pair.Secondary.Snapshot().Notes)
		}
	})
}

// The leader renews: it has written the one object, and writes the other next.
func TestAPauseBetweenTheTwoWritesOfARenewalStands(t *testing.T) {
	playOrders(t, func(t *testing.T, pair locktest.Pair, a, b *candidate, way *locktest.PairLock, o admin.Operator) {
		paused := false
		way.Secondary.SetFault(func(v locktest.Verb) locktest.Fault {
			if v == locktest.Update && !paused {
				paused = true
				if err := o.Pause(t.Context(), "", time.Hour); err != nil {
					t.Error(err)
				}
			}
			return locktest.Fault{}
		})
		pass(4 * retry)
		setDefault("canary", a, b)
		pass(time.Minute)
		if !paused || !a.isLive() || b.isLive() {
			t.Errorf("paused %v: a live %v, b live %v", paused, a.isLive(), b.isLive())
		}
		for _, store := range []*locktest.Store{pair.Primary, pair.Secondary} {
			if store.Snapshot().Notes[k8sresourcelock.HoldAnnotation] == "" {
				t.Errorf("%s shows no hold", store.Kind())
			}
		}
	})
}

func TestAResumeBetweenTheTwoWritesOfARenewalStands(t *testing.T) {
	playOrders(t, func(t *testing.T, pair locktest.Pair, a, b *candidate, way *locktest.PairLock, o admin.Operator) {
		if err := o.Pause(t.Context(), "", time.Hour); err != nil {
			t.Fatal(err)
		}
		pass(3 * retry)
		resumed := false
		way.Secondary.SetFault(func(v locktest.Verb) locktest.Fault {
			if v == locktest.Update && !resumed {
				resumed = true
				if err := o.Resume(t.Context()); err != nil {
					t.Error(err)
				}
			}
			return locktest.Fault{}
		})
		pass(4 * retry)
		setDefault("canary", a, b)
		pass(time.Minute) // the request may meet a renewal; the hold was for an hour
		if !resumed || a.isLive() || !b.isLive() {
			t.Errorf("resumed %v: a live %v, b live %v\n%s", resumed, a.isLive(), b.isLive(), a.logged()+b.logged())
		}
	})
}
