package k8sleaderelection_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

func coordinated(c *le.LeaderElectionConfig) { c.Coordinated, c.Ranked = true, true }

// name writes a holder in, as Kubernetes' controller does.
func name(store *locktest.Store, holder string) {
	store.Mutate(func(obj locktest.Object) {
		spec := &obj.(*coordinationv1.Lease).Spec
		spec.Strategy, spec.PreferredHolder = new(coordinationv1.CoordinatedLeaseStrategy("example.com/Zone")), nil
		spec.HolderIdentity, spec.LeaseDurationSeconds, spec.AcquireTime = &holder, new(int32(5)), nil
		spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	})
}

func prefer(store *locktest.Store, who string) {
	store.Mutate(func(obj locktest.Object) { obj.(*coordinationv1.Lease).Spec.PreferredHolder = &who })
}

// onLeases runs f with time of its own, on a Lease that is watched alone and on one of a shared watch.
func onLeases(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := locktest.NewStore(locktest.Lease)
			if shared {
				store.ShareWatches()
			}
			f(t, store)
		})
	}
}

func held(s *locktest.Store) k8sresourcelock.Snapshot { return s.Snapshot() }

func TestOneThatIsNamedLeadsAndHandsOver(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a, b := enter(t, store, "a", coordinated), enter(t, store, "b", coordinated)
		pass(lease)
		if held(store).Exists || a.isLive() || b.isLive() {
			t.Fatalf("nobody was named: %+v", held(store))
		}
		name(store, "a")
		pass(time.Second)
		if s := held(store); !a.isLive() || s.Record.LeaderTransitions != 1 || s.Record.LeaseDurationSeconds != int(lease/time.Second) || s.Strategy == "" {
			t.Fatalf("a was named: %+v", s)
		}
		prefer(store, "b")
		pass(time.Second)
		if s := held(store); a.isLive() || !b.isLive() || s.Record.HolderIdentity != "b" || s.Record.LeaderTransitions != 2 || s.PreferredHolder != "" || s.Strategy == "" {
			t.Fatalf("b is preferred: %+v", s)
		}
		if err := b.quit(); err != nil {
			t.Fatal(err)
		}
		spec := held(store).Object.(*coordinationv1.Lease).Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity != "" || spec.Strategy == nil {
			t.Errorf("b has released: %+v", spec)
		}
		pass(lease)
		if a.isLive() || held(store).Record.HolderIdentity != "" {
			t.Errorf("a takes the lock, and nobody has named it: %+v", held(store).Record)
		}
	})
}

// A lock that nobody cares for falls to the rules without a coordinator, and who has come to it so gives way later.
func TestWithoutACoordinator(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", coordinated)
		pass(3*lease - time.Second)
		if a.isLive() {
			t.Fatal("a leads, and nobody has named it")
		}
		pass(2 * time.Second)
		if !a.isLive() {
			t.Fatalf("a waits for ever:\n%s", a.logged())
		}
		b := enter(t, store, "b", coordinated)
		pass(time.Second)
		prefer(store, "b") // without a strategy it is nobody's word
		pass(time.Second)
		if b.isLive() {
			t.Fatal("b leads, and no coordinator has asked for that")
		}
		store.Mutate(func(obj locktest.Object) {
			obj.(*coordinationv1.Lease).Spec.Strategy = new(coordinationv1.CoordinatedLeaseStrategy("example.com/Zone"))
		})
		pass(time.Second)
		if !b.isLive() || a.isLive() {
			t.Errorf("b is preferred:\n%s", a.logged())
		}
		if n := strings.Count(a.logged(), "no coordinator names a leader"); n != 1 {
			t.Errorf("said %d times:\n%s", n, a.logged())
		}
	})
}

// Rank counts beside a leader only once the coordinator has been known to be gone for three leases.
func TestACoordinatorThatIsGone(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a, b := prepareKey(t, store, "a", "stable", coordinated), prepareKey(t, store, "b", "canary", coordinated)
		for _, c := range []*candidate{a, b} {
			c.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "canary"})
			c.start(t)
		}
		name(store, "a")
		pass(lease)
		if !a.isLive() {
			t.Fatal("a was named")
		}
		a.SetCoordinatorAbsent(true)
		b.SetCoordinatorAbsent(true)
		pass(2 * lease)
		if !a.isLive() {
			t.Fatal("a was displaced by rank, and the coordinator may be back")
		}
		pass(2 * lease)
		if !b.isLive() {
			t.Fatalf("b outranks a, and there is no coordinator:\n%s", b.logged())
		}
		b.SetCoordinatorAbsent(false)
		pass(lease)
		if n := strings.Count(b.logged(), "a coordinator chooses who holds this lock again"); n != 1 {
			t.Errorf("said %d times:\n%s", n, b.logged())
		}
	})
}

// One that does not wait to be named says so, once, and gives way by its ordinary release.
func TestAnElectorBesideACoordinator(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		name(store, "") // as Kubernetes' controller makes the Lease of a strategy that it does not know
		a := enter(t, store, "a")
		pass(lease)
		if !a.isLive() {
			t.Fatal("a does not lead, and does not wait to be named")
		}
		b := enter(t, store, "b", coordinated)
		prefer(store, "b")
		pass(time.Second)
		if s := held(store); a.isLive() || b.isLive() || s.Record.HolderIdentity != "" || s.PreferredHolder != "b" {
			t.Fatalf("a gives way, and the coordinator names b next: %+v\n%s", s, a.logged())
		}
		name(store, "b")
		pass(lease)
		if !b.isLive() || a.isLive() {
			t.Error("b was named")
		}
		if n := strings.Count(a.logged(), "a coordinator chooses who holds this lock, and this elector"); n != 1 {
			t.Errorf("said %d times:\n%s", n, a.logged())
		}
	})
}

// istiod writes a Lease without what it does not know.
func TestAStrategyThatIsWiped(t *testing.T) {
	onLeases(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a", coordinated)
		name(store, "a")
		pass(time.Second)
		store.Mutate(func(obj locktest.Object) {
			l := obj.(*coordinationv1.Lease)
			l.Spec.Strategy, l.Spec.HolderIdentity, l.Spec.LeaseTransitions = nil, new("istiod"), new(int32(2))
		})
		pass(time.Second)
		if n := strings.Count(a.logged(), "the lock's strategy was wiped"); n != 1 || a.isLive() {
			t.Errorf("said %d times, leads %v:\n%s", n, a.isLive(), a.logged())
		}
	})
}

func TestWhatCannotBeCoordinated(t *testing.T) {
	for want, change := range map[string]func(*le.LeaderElectionConfig){
		"a coordinator knows Leases alone": func(c *le.LeaderElectionConfig) {
			c.Lock = &k8sresourcelock.ConfigMapLock{}
		},
		"leave one of the two out":                       func(c *le.LeaderElectionConfig) { c.PreemptImmediately = true },
		"a coordinator chooses, leave one":               func(c *le.LeaderElectionConfig) { c.KeyComparison = func(string) bool { return true } },
		"which does not show what a coordinator writes:": func(c *le.LeaderElectionConfig) { c.Lock = locktest.NewStore(locktest.Lease).Lock("a", "").Plain() },
	} {
		config := le.LeaderElectionConfig{
			Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, Coordinated: true,
		}
		if err := config.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
