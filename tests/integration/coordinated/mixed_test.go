package coordinated

import (
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// TestMixedReplicas switches replicas to coordination one by one, and back. At most one leader is active, each step ends with
// a leader, and the transitions never decrease.
func TestMixedReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	ranked := func(c *leaderelection.Config) { brisk(c); c.DefaultWatcher = w.revision }
	var all []string // expected leaders
	leads := func(step, holder string, c *candidate) {
		t.Helper()
		w.await(step, func() bool { return c.leads.Load() && h.renewals(holder) >= 3 })
		all = append(all, holder)
	}

	stable := w.candidate("stable-1", "stable", brisk, w.uncoordinated)
	leads("by rank: default revision leads", "stable-1", stable)
	canary := w.candidate("canary-1", "canary", brisk, w.uncoordinated)
	w.await("canary-1 follows", func() bool { holder, _ := canary.election.Leader(); return holder == "stable-1" })
	canary.stop()
	canary = w.candidate("canary-2", "canary", ranked)
	w.await("coordinated candidate is published", func() bool { return w.leaseCandidate("canary-2") != nil })
	leads("mixed: uncoordinated leader stays", "stable-1", stable)
	if canary.leads.Load() {
		t.Error("two leaders")
	}

	coordinator := w.coordinate()
	stable.stop()
	leads("coordinated candidate is named", "canary-2.x", canary)
	stable = w.candidate("stable-2", "stable", ranked)
	leads("coordinated: default revision leads", "stable-2.x", stable)
	if spec := w.lease().Spec; string(ptr.Deref(spec.Strategy, "")) != coordination.DefaultRevision {
		t.Errorf("the lock is %+v", spec)
	}

	stable.stop()
	leads("coordinated candidate is named again", "canary-2.x", canary)
	stable = w.candidate("stable-3", "stable", brisk, w.uncoordinated)
	w.await("uncoordinated candidate logs it", func() bool { return stable.log.Count("lock is coordinated and this elector is not") > 0 })
	leads("mixed again: coordinated leader stays", "canary-2.x", canary)

	coordinator.stop()
	canary.stop()
	leads("uncoordinated candidate acquires the free lock", "stable-3", stable)
	canary = w.candidate("canary-3", "canary", brisk, w.uncoordinated)
	w.revision.Set("canary")
	leads("by rank again: new default revision leads", "canary-3", canary)

	for _, coordinated := range []string{"canary-2.x", "stable-2.x"} {
		if i := slices.IndexFunc(h.list(), func(l *coordinationv1.Lease) bool { return ptr.Deref(l.Spec.HolderIdentity, "") == coordinated }); !nominated(h.list()[i]) {
			t.Errorf("%s acquired the lock without a nomination: %+v", coordinated, h.list()[i].Spec)
		}
	}
	if led, want := h.led(t), slices.Compact(all); !slices.Equal(led, want) {
		t.Errorf("leaders %q, want %q", led, want)
	}
}
