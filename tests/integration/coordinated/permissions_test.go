package coordinated

import (
	"context"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// campaign starts a coordinator with its election, as a server does.
func (w *world) campaign(pod string, config *rest.Config) (c *coordinator, warm *atomic.Bool) {
	w.t.Helper()
	c, warm = w.newCoordinator(config), &atomic.Bool{}
	cfg := leaderelection.Config{
		Namespace: w.home, Identity: pod, ElectionID: leaderelection.Coordinator, Revision: "stable", Lock: leaderelection.LockTypeLease,
	}
	brisk(&cfg)
	election, err := leaderelection.New(w.connect(config), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	election.AddWarmup(func(ctx context.Context) error {
		err := c.Warm(ctx)
		warm.Store(err == nil)
		return err
	}).AddRunContext(c.Run)
	c.stop = harness.Background(w.t, func(ctx context.Context) {
		defer c.Close()
		_ = election.RunContext(ctx)
	})
	return c, warm
}

// coordinates returns the holder of the coordinator election.
func (w *world) coordinates() string {
	l, err := w.admin.Kube().CoordinationV1().Leases(w.home).Get(w.t.Context(), leaderelection.Coordinator, metav1.GetOptions{})
	if err != nil {
		l = &coordinationv1.Lease{}
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// TestCoordinator_WithoutPermission: a process without permission to list LeaseCandidates does not become the coordinator.
func TestCoordinator_WithoutPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.identityOf("blind", "restricted", "defaults")
	var blind harness.Log
	config.Wrap(harness.Requests(&blind))
	_, warm := w.campaign("blind", config)
	stable := w.candidate("stable-1", "stable", brisk)
	w.await("request forbidden", func() bool { return blind.Count("GET ", "/leasecandidates 403 ") >= 2 })
	if who := w.coordinates(); who != "" || warm.Load() {
		t.Fatalf("%q coordinates without permission", who)
	}
	seeing, _ := w.campaign("seeing", w.identity("seeing", "pilot"))
	w.await("other process coordinates", func() bool { return w.coordinates() == "seeing" })
	canary := w.candidate("canary-1", "canary", brisk)
	w.revision.Set("canary")
	w.await("its choice leads", canary.leads.Load)
	w.identity("more-rights", "restricted")
	w.await("permission granted", warm.Load)
	seeing.stop()
	w.await("first process coordinates", func() bool { return w.coordinates() == "blind" })
	w.revision.Set("stable")
	w.await("its choice leads", stable.leads.Load)
}
