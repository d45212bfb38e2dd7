package k8sleaderelection_test

import (
	"strings"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A drain is measured from its begin, however often the lock is renewed meanwhile.
func TestALongDrainIsMeasuredWhole(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		var w witness
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) { c.Observer = &w })
		pass(time.Minute)
		w.take()
		a.drain = 3 * retry
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		_, _, lasted := w.take()
		if !strings.Contains(strings.Join(lasted, ", "), "drain 22.5s") {
			t.Errorf("durations %q", lasted)
		}
		if !strings.Contains(a.logged(), "to=leading") || strings.Count(a.logged(), "claim=") != 1 {
			t.Errorf("how the lock was come by is said once, when it leads:\n%s", a.logged())
		}
	})
}
