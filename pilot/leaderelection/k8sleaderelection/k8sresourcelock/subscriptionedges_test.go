package k8sresourcelock

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/watch"
)

func TestSubscriptionWakesOnce(t *testing.T) {
	sharedTest(t, "until somebody looks", func(t *testing.T, s *leaseServer, h *Shared) {
		wakes := 0
		a := leaseLock(h, "a").Subscribe(t.Context(), func() { wakes++ })
		defer a.End()
		synctest.Wait()
		s.say(watch.Added, "a", "9")
		s.say(watch.Modified, "a", "10")
		if wakes != 1 {
			t.Errorf("%d wakes for news that nobody has taken", wakes)
		}
		newsOf(a)
		s.say(watch.Modified, "a", "11")
		if wakes != 2 {
			t.Errorf("%d wakes", wakes)
		}
	})
}
