package k8sleaderelection_test

import (
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A watch of both objects that shares the namespace's reads the Lease before it is up. When
// that read is never answered the watch must begin anew: else the follower would poll for as long
// as it follows, with no watch refused and none asked for.
func TestAFollowerOfBothLocksOutlivesAReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := locktest.NewPair()
		a, _ := enterPair(t, pair, "a")
		pass(time.Second)
		lock := pair.Lock("b", "stable")
		half := lock.Secondary.Locker.(*k8sresourcelock.LeaseLock)
		half.Shared = &k8sresourcelock.Shared{Client: half.Client, ShareFrom: 1}
		b := prepare(t, pair.Primary, "b", func(c *le.LeaderElectionConfig) { c.Lock = lock.MultiLock })
		b.start(t)
		pass(time.Minute)
		sent := func() int {
			return lock.Primary.Requests()[locktest.Get] + lock.Secondary.Requests()[locktest.Get]
		}
		quiet := func(when string) {
			t.Helper()
			before := sent()
			pass(2 * time.Minute)
			if n := sent() - before; n > 0 || !a.isLive() || b.isLive() {
				t.Errorf("%s: b, a follower, has read %d times in two minutes; a live %v, b live %v", when, n, a.isLive(), b.isLive())
			}
		}
		quiet("at first")
		lock.Secondary.FailNext(locktest.Get, locktest.Fault{Hang: true})
		lock.Secondary.ExpireWatches()
		pass(time.Minute)
		quiet("after a read that hung")
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); !b.isLive() {
			t.Error("b has not seen the release")
		}
	})
}
