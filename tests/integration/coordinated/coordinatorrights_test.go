package coordinated

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// campaign has a coordinator take part in the coordinators' election, as a server has it.
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
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = election.RunContext(ctx) })
	c.stop = sync.OnceFunc(func() { cancel(); running.Wait(); c.Close() })
	w.t.Cleanup(c.stop)
	return c, warm
}

// coordinates is whose the coordinators' election is.
func (w *world) coordinates() string {
	l, err := w.admin().Kube().CoordinationV1().Leases(w.home).Get(w.t.Context(), leaderelection.Coordinator, metav1.GetOptions{})
	if err != nil {
		l = &coordinationv1.Lease{}
	}
	return value(l.Spec.HolderIdentity)
}

// One that may not list and watch LeaseCandidates does not become coordinator: it would choose among nobody. Another does, and the first one once it may.
func TestACoordinatorThatMayNotList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, refused := counting(w.identity("blind", "restricted", [2]string{"list", "leasecandidates"}, [2]string{"watch", "leasecandidates"}), http.MethodGet)
	_, warm := w.campaign("blind", config)
	stable := w.candidate("stable-1", "stable", brisk)
	// client-go tries the fifth time after twelve seconds at the earliest.
	w.await("it was refused five times", func() bool { return refused.n.Load() >= 5 })
	if who := w.coordinates(); who != "" || warm.Load() {
		t.Fatalf("%q coordinates, which does not know the candidates", who)
	}
	seeing, _ := w.campaign("seeing", w.identity("seeing", "pilot"))
	w.await("another coordinates", func() bool { return w.coordinates() == "seeing" })
	canary := w.candidate("canary-1", "canary", brisk)
	w.revision.Set("canary")
	w.await("the other's choice leads", canary.leads.Load)
	w.identity("more-rights", "restricted")
	w.await("it may list", warm.Load)
	seeing.stop()
	w.await("it coordinates", func() bool { return w.coordinates() == "blind" })
	w.revision.Set("stable")
	w.await("its choice leads", stable.leads.Load)
}
