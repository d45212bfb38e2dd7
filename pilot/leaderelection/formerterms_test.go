package leaderelection

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// What ends the leader's own term may have befallen the predecessor's lock as well, beneath a replica of an earlier version
// that drains. The next term remembers that one, and so do others who wait.
func TestAHolderOfEarlierVersionsIsRememberedByTheNextTerm(t *testing.T) {
	for name, x := range map[string]struct {
		again bool // it was kept before
		harm  func(s *lockServer, kept locktest.Backup)
	}{
		"a restore":                           {true, func(s *lockServer, kept locktest.Backup) { s.leases.Delete(); s.objects.Restore(kept) }},
		"both locks deleted":                  {true, func(s *lockServer, _ locktest.Backup) { s.leases.Delete(); s.objects.Delete() }},
		"both locks deleted in a first term":  {false, func(s *lockServer, _ locktest.Backup) { s.leases.Delete(); s.objects.Delete() }},
		"the old one deleted in a first term": {false, func(s *lockServer, _ locktest.Backup) { s.objects.Delete() }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *lockServer) { remembers(t, s, x.again, x.harm) })
		})
	}
}

func remembers(t *testing.T, s *lockServer, again bool, harm func(*lockServer, locktest.Backup)) {
	replaces := func(c *Config) {
		c.Lock, c.Predecessor = LeaseLock, &Predecessor{Name: locktest.Name}
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = oldLease, oldRenew, oldRetry
	}
	kept := s.objects.Backup()
	if again {
		first := s.candidate(t, "first", replaces).starts(t)
		passes(time.Minute)
		kept = s.objects.Backup()
		if err := first.quits(); err != nil {
			t.Fatal(err)
		}
	}
	before := old(t, s.objects, "before")
	passes(time.Minute)
	a := s.candidate(t, "a", replaces)
	a.AddRunContext(a.work)
	a.starts(t)
	other := successor(t, s.objects, "other") // a leader of another revision
	passes(time.Minute)
	if !before.works() || a.works() || other.works() || !a.Status().Waiting {
		t.Fatalf("before: the old replica works %v, the other leader %v, %+v", before.works(), other.works(), a.Status())
	}
	before.drain = oldLease - oldRenew - time.Second // as long as it may
	before.client.MuteWatches(true)
	before.client.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
	harm(s, kept)
	for range int(3 * oldLease / (100 * time.Millisecond)) {
		if passes(100 * time.Millisecond); before.works() && (a.works() || other.works()) {
			t.Fatalf("the old replica works beside the next term, %v, or the other leader, %v", a.works(), other.works())
		}
	}
	if before.works() || !a.works() || !other.works() {
		t.Errorf("after: the old replica works %v, the other leader %v, %+v", before.works(), other.works(), a.Status())
	}
}
