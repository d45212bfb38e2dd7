package k8sleaderelection_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func coordinated(c *le.LeaderElectionConfig) {
	c.Coordinated = true
	c.Ranked = true
}

// nominate writes a holder into the Lease, as the coordinator of Kubernetes does.
func nominate(store *locktest.Store, holder string) {
	store.Mutate(func(obj locktest.Object) {
		spec := &obj.(*coordinationv1.Lease).Spec
		spec.Strategy = new(coordinationv1.CoordinatedLeaseStrategy("example.com/Zone"))
		spec.PreferredHolder = nil
		spec.HolderIdentity = &holder
		spec.LeaseDurationSeconds = new(int32(5))
		spec.AcquireTime = nil
		spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	})
}

func prefer(store *locktest.Store, holder string) {
	store.Mutate(func(obj locktest.Object) { obj.(*coordinationv1.Lease).Spec.PreferredHolder = &holder })
}

// While the coordinator is absent, candidates are ranked.
func TestCoordinatorAbsent(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a := prepareKey(t, store, "a", "stable", coordinated)
		b := prepareKey(t, store, "b", "canary", coordinated)
		for _, c := range []*candidate{a, b} {
			c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
			c.start(t)
		}
		nominate(store, "a")
		advance(lease)
		if !a.Live() {
			t.Fatal("a is nominated and does not lead")
		}
		a.SetCoordinatorAbsent(true)
		b.SetCoordinatorAbsent(true)
		advance(2 * time.Second)
		if !b.Live() {
			t.Fatalf("b outranks a and does not lead:\n%s", b.log.String())
		}
		b.SetCoordinatorAbsent(false)
		advance(lease)
		if n := b.log.Count("coordinator chooses the leader again"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, b.log.String())
		}
	})
}

// An elector that is not coordinated leads a coordinated lock until a coordinator names a holder. It logs that once.
func TestUncoordinatedElector(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		nominate(store, "") // the coordinator of Kubernetes writes this for an unknown strategy
		a := startCandidate(t, store, "a")
		advance(lease)
		prefer(store, "ghost")
		advance(lease)
		if preferred := store.Snapshot().PreferredHolder; !a.Live() || preferred != "" {
			t.Errorf("a runs: %v, preferred %q", a.Live(), preferred)
		}
		if n := a.log.Count("lock is coordinated and this elector is not"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, a.log.String())
		}
	})
}

// istiod removes the strategy from a Lease when it writes it.
func TestStrategyRemoved(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a := startCandidate(t, store, "a", coordinated)
		nominate(store, "a")
		advance(time.Second)
		store.Mutate(func(obj locktest.Object) {
			spec := &obj.(*coordinationv1.Lease).Spec
			spec.Strategy = nil
			spec.HolderIdentity = new("istiod")
			spec.LeaseTransitions = new(int32(2))
		})
		advance(time.Second)
		if n := a.log.Count("strategy was removed from the lock"); n != 1 || a.Live() {
			t.Errorf("logged %d times, runs %v:\n%s", n, a.Live(), a.log.String())
		}
	})
}
