package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A candidate that outranks the leader and may not write the second of two objects does not ask
// for a lock that it could not take: the leader would drain for it again and again. When it may, it
// asks soon.
func TestWhoMayNotWriteBothLocksAsksForNeither(t *testing.T) {
	for name, lockOf := range map[string]func(*locktest.PairLock) k8sresourcelock.Interface{
		"the leader holds both":      func(l *locktest.PairLock) k8sresourcelock.Interface { return l.MultiLock },
		"the leader holds the first": func(l *locktest.PairLock) k8sresourcelock.Interface { return l.Primary.Locker },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pair := locktest.NewPair()
				enter := func(identity, revision string, lockOf func(*locktest.PairLock) k8sresourcelock.Interface) (*candidate, *locktest.PairLock) {
					lock := pair.Lock(identity, revision)
					c := prepareKey(t, pair.Primary, identity, revision, func(c *le.LeaderElectionConfig) { c.Ranked, c.Lock = true, lockOf(lock) })
					c.lock = lock.Primary
					c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
					return c, lock
				}
				a, _ := enter("a", "canary", lockOf)
				a.start(t)
				pass(time.Second)
				b, poor := enter("b", "stable", func(l *locktest.PairLock) k8sresourcelock.Interface { return l.MultiLock })
				poor.Secondary.Forbid(locktest.Create, locktest.Update)
				b.start(t)
				pass(10 * time.Minute)
				if a.terms() != 1 || b.terms() != 0 {
					t.Errorf("within ten minutes the leader began %d terms, and who may not lead %d", a.terms(), b.terms())
				}
				poor.Secondary.Allow(locktest.Create, locktest.Update)
				pass(time.Minute)
				if !b.isLive() {
					t.Errorf("it may write both, and does not lead\n%s", b.logged())
				}
			})
		})
	}
}
