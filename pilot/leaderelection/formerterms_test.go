package leaderelection

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A restore ends the leader's own term together with that of an earlier version's replica, which
// drains beneath the kept record that has come back. The next term remembers it.
func TestAHolderOfEarlierVersionsIsRememberedByTheNextTerm(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		replaces := func(c *Config) {
			c.Lock, c.Predecessor = LeaseLock, &Predecessor{Name: locktest.Name}
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = oldLease, oldRenew, oldRetry
		}
		first := s.actor(t, "first", replaces).starts(t)
		passes(time.Minute)
		kept := s.objects.Backup()
		if err := first.quits(); err != nil {
			t.Fatal(err)
		}
		before := old(t, s.objects, "before")
		passes(time.Minute)
		a := s.actor(t, "a", replaces)
		a.AddRunContext(a.work)
		a.starts(t)
		passes(time.Minute)
		if !before.works() || a.works() || !a.Status().Waiting {
			t.Fatalf("before the restore: the old replica works %v, %+v", before.works(), a.Status())
		}
		before.drain = oldLease - oldRenew - time.Second // as long as it may
		before.client.MuteWatches(true)
		before.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		s.leases.Delete()
		s.objects.Restore(kept)
		for range int(2 * oldLease / (100 * time.Millisecond)) {
			if passes(100 * time.Millisecond); before.works() && a.works() {
				t.Fatal("both work")
			}
		}
		if before.works() || !a.works() {
			t.Errorf("after the restore: the old replica works %v, %+v", before.works(), a.Status())
		}
	})
}
