package coordinated

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// emulating requests the strategy of Kubernetes.
func emulating(version string) func(*leaderelection.Config) {
	return func(c *leaderelection.Config) {
		c.Coordination.Strategy = coordination.OldestEmulationVersion
		c.Coordination.EmulationVersion = version
	}
}

// The coordinator of the API server names candidates of this module and requests a handover to an older emulation version.
func TestKubernetesStrategy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	newer := w.candidate("a", "stable", emulating("0.10.0"))
	w.await("the only candidate leads", newer.leads.Load)
	older := w.candidate("b", "stable", emulating("0.9.0"))
	w.await("the older emulation version leads", older.leads.Load)
	older.stop()
	w.await("the other leads again", newer.leads.Load)
	if newer.log.Count("settling")+older.log.Count("settling") > 0 {
		t.Errorf("a candidate settled:\n%s\n%s", newer.log.String(), older.log.String())
	}
}
