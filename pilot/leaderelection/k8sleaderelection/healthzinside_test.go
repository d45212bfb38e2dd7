package k8sleaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// Functions are tolerated for the lease and what is granted beyond it, to the nanosecond.
func TestHealthAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tolerated = 10 * time.Second
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) { c.Name = "test" })
		l.le.view.Store(&view{alive: true, acked: l.le.clock.mono()})
		<-time.After(l.le.config.LeaseDuration + tolerated)
		if err := l.le.Check(tolerated); err != nil {
			t.Errorf("at the bound: %v", err)
		}
		<-time.After(time.Second)
		if err := l.le.Check(tolerated); err == nil || err.Error() != "election test: run functions are still alive 11s after the lease ran out" {
			t.Errorf("beyond it: %v", err)
		}
	})
}
