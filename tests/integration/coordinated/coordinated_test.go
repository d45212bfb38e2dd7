package coordinated

import (
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// events counts Events by reason.
type events struct{ named, preferred atomic.Int32 }

func (e *events) Eventf(_ runtime.Object, _, reason, _ string, _ ...any) {
	switch reason {
	case "LeaderNamed":
		e.named.Add(1)
	case "LeaderPreferred":
		e.preferred.Add(1)
	}
}

func TestCoordinator_Chooses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var recorded events
	w.coordinate(func(c *coordination.Config) { c.EventRecorder = &recorded })
	stable := w.candidate("stable-1", "stable")
	w.await("default revision leads", stable.leads.Load)
	canary := w.candidate("canary-1", "canary")
	w.await("other candidate is published", func() bool { return w.leaseCandidate("canary-1") != nil })
	mine := w.leaseCandidate("stable-1")
	if mine == nil || len(mine.OwnerReferences) != 1 || mine.Labels[coordination.RevisionLabel] != "stable" {
		t.Errorf("LeaseCandidate %+v", mine)
	}
	for _, revision := range []string{"canary", "stable", "canary"} {
		w.revision.Set(revision)
		w.await("new default leads", map[string]*candidate{"stable": stable, "canary": canary}[revision].leads.Load)
	}
	// An Event is recorded after the write. If a handover needs more than five seconds, the coordinator repeats its preference.
	w.await("Events", func() bool { return recorded.named.Load() > 0 && recorded.preferred.Load() >= 3 })
	canary.unfit.Store(true)
	w.await("unfit candidate is labelled", func() bool { return w.leaseCandidate("canary-1").Labels[coordination.FitLabel] == "false" })
	canary.unfit.Store(false)
	canary.stop()
	w.await("other candidate leads", stable.leads.Load)
	// A process does not wait for a slow API server when it ends.
	if slow := canary.log.Count("failed to delete") + canary.log.Count("does not respond"); slow == 0 && w.leaseCandidate("canary-1") != nil {
		t.Errorf("LeaseCandidate remains:\n%s", canary.log.String())
	}
	w.await("preference is removed", func() bool { return w.lease().Spec.PreferredHolder == nil })
	if spec := w.lease().Spec; string(ptr.Deref(spec.Strategy, "")) != coordination.DefaultRevision || *spec.LeaseTransitions < 5 {
		t.Errorf("%+v", spec)
	}
	if stable.log.Count("settling") > 0 {
		t.Errorf("a candidate settled:\n%s", stable.log.String())
	}
}

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
	newer := w.candidate("a", "stable", emulating("0.9.0"))
	w.await("the only candidate leads", newer.leads.Load)
	older := w.candidate("b", "stable", emulating("0.8.0"))
	w.await("the older emulation version leads", older.leads.Load)
	older.stop()
	w.await("the other leads again", newer.leads.Load)
	if newer.log.Count("settling")+older.log.Count("settling") > 0 {
		t.Errorf("a candidate settled:\n%s\n%s", newer.log.String(), older.log.String())
	}
}
