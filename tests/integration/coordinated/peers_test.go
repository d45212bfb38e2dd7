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
	doesNotWait = "lock is coordinated and this elector is not"
	wiped       = "strategy was removed from the lock"
)

// One that is not told to wait meets a coordinated Lease: it says so once, leads what it finds free, and gives way by a
// release of its own where the coordinator prefers another.
func TestOneThatDoesNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	w.coordinate()
	first := w.candidate("stable-1", "stable", brisk)
	w.await("the candidate leads", first.leads.Load)
	alone := w.candidate("alone", "other", brisk, w.uncoordinated)
	w.await("it says that it does not wait", func() bool { return alone.log.Count(doesNotWait) == 1 })
	first.stop()
	w.await("it leads, since nobody else could", alone.leads.Load)
	w.await("its term goes on", func() bool { return h.renewals("alone") >= 3 })
	second := w.candidate("stable-2", "stable", brisk)
	w.await("it gives way", second.leads.Load)
	w.await("its successor's term goes on", func() bool { return h.renewals("stable-2.x") >= 3 })
	if alone.leads.Load() || alone.log.Count(doesNotWait) != 1 {
		t.Errorf("it leads still, or says more than once:\n%s", alone.log.String())
	}
	if got := h.led(); !slices.Equal(got, []string{"", "stable-1.x", "", "alone", "", "stable-2.x"}) {
		t.Errorf("the leaders were %q", got)
	}
	if !slices.Equal(h.preferred(), []string{"stable-2.x"}) || h.falls() {
		t.Errorf("preferred were %q", h.preferred())
	}
	if now := w.lease(); string(value(now.Spec.Strategy)) != coordination.DefaultRevision {
		t.Errorf("the lock is %+v", now.Spec)
	}
}

// istiod is a peer that knows no coordinator: it writes the whole spec, without a strategy.
type istiod struct {
	w *world
}

// write has the lock say what istiod's record says: as a holder, or, with an empty one, as its release.
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

// An istiod takes the lock by its own rule, and wipes the strategy. That is said; once the istiod has released, Kubernetes' controller
// writes the strategy again, and a candidate leads.
func TestAnIstiodInACoordinatedElection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	coordinator := w.coordinate()
	ranked := func(c *leaderelection.Config) { brisk(c); c.DefaultWatcher = w.revision }
	stable, canary := w.candidate("stable-1", "stable", ranked), w.candidate("canary-1", "canary", ranked)
	w.await("the default revision leads", stable.leads.Load)
	w.await("the other follows", func() bool { who, _ := canary.election.Leader(); return who == "stable-1.x" })
	peer := istiod{w}
	peer.write("istiod", 1)
	w.await("it stops", func() bool { return !stable.leads.Load() })
	for range 4 {
		<-time.After(500 * time.Millisecond) // as an istiod renews
		peer.write("istiod", 0)
	}
	for _, c := range []*candidate{stable, canary} {
		w.await("it is said", func() bool { return c.log.Count(wiped, "holder=istiod") == 1 })
	}
	if stable.leads.Load() || canary.leads.Load() || value(w.lease().Spec.Strategy) != "" {
		t.Errorf("beside istiod: %+v", w.lease())
	}
	w.revision.Set("canary")
	peer.write("", 0)
	w.await("the new default leads, named by the coordinator", canary.leads.Load)
	for _, c := range []*candidate{stable, canary} {
		w.await("it is over", func() bool { return c.log.Count("lock has a strategy again") == 1 })
		if c.log.Count(wiped) != 1 {
			t.Errorf("it is said more than once:\n%s", c.log.String())
		}
	}
	if now := w.lease(); string(value(now.Spec.Strategy)) != coordination.DefaultRevision || h.falls() {
		t.Errorf("the lock is %+v", now.Spec)
	}
	if got := h.led(); !slices.Equal(got, []string{"", "stable-1.x", "istiod", "", "canary-1.x"}) {
		t.Errorf("the leaders were %q", got)
	}
	if coordinator.log.Count("level=WARN")+coordinator.log.Count("level=ERROR") > 0 {
		t.Errorf("the coordinator says:\n%s", coordinator.log.String())
	}
}
