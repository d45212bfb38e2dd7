package coordinated

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

const (
	notCoordinated  = "lock is coordinated and this elector is not"
	strategyRemoved = "strategy was removed from the lock"
)

// istiod is an elector without coordination. It writes the whole spec, without a strategy.
type istiod struct {
	w *world
}

// write is a renewal of istiod, or a release if holder is empty.
func (i istiod) write(holder string, transitions int32) {
	i.w.t.Helper()
	leases := i.w.admin().Kube().CoordinationV1().Leases(i.w.home)
	seconds := int32(3)
	if holder == "" {
		seconds = 1
	}
	i.w.await("istiod writes", func() bool {
		lease := i.w.lease()
		now := metav1.NewMicroTime(time.Now())
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
			LeaseTransitions: new(value(lease.Spec.LeaseTransitions) + transitions),
		}
		_, err := leases.Update(i.w.t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

// TestIstiod_RemovesStrategy: istiod preempts and removes the strategy. After istiod releases the lock, the coordinator
// restores the strategy and a candidate leads.
func TestIstiod_RemovesStrategy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	coordinator := w.coordinate()
	ranked := func(c *leaderelection.Config) { brisk(c); c.DefaultWatcher = w.revision }
	stable, canary := w.candidate("stable-1", "stable", ranked), w.candidate("canary-1", "canary", ranked)
	w.await("the default revision leads", stable.leads.Load)
	w.await("other candidate follows", func() bool { who, _ := canary.election.Leader(); return who == "stable-1.x" })
	peer := istiod{w}
	peer.write("istiod", 1)
	w.await("leader stops", func() bool { return !stable.leads.Load() })
	for range 4 {
		<-time.After(500 * time.Millisecond) // as an istiod renews
		peer.write("istiod", 0)
	}
	for _, c := range []*candidate{stable, canary} {
		w.await("removal logged", func() bool { return c.log.Count(strategyRemoved, "holder=istiod") == 1 })
	}
	if stable.leads.Load() || canary.leads.Load() || value(w.lease().Spec.Strategy) != "" {
		t.Errorf("while istiod holds the lock: %+v", w.lease())
	}
	w.revision.Set("canary")
	peer.write("", 0)
	w.await("new default leads", canary.leads.Load)
	for _, c := range []*candidate{stable, canary} {
		w.await("the end is logged", func() bool { return c.log.Count("lock has a strategy again") == 1 })
		if c.log.Count(strategyRemoved) != 1 {
			t.Errorf("logged more than once:\n%s", c.log.String())
		}
	}
	if now := w.lease(); string(value(now.Spec.Strategy)) != coordination.DefaultRevision || h.falls() {
		t.Errorf("lock: %+v", now.Spec)
	}
	if got := h.led(); !slices.Equal(got, []string{"", "stable-1.x", "istiod", "", "canary-1.x"}) {
		t.Errorf("leaders: %q", got)
	}
	if coordinator.log.Count("level=WARN")+coordinator.log.Count("level=ERROR") > 0 {
		t.Errorf("log of the coordinator:\n%s", coordinator.log.String())
	}
}
