package elections

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// migration is an election whose replicas have different types of locks. Its default revision is set directly.
type migration struct {
	*fixture
	t               *testing.T
	defaultRevision *defaults.Watcher
	all             []*candidate
}

func newMigration(t *testing.T) *migration {
	t.Helper()
	t.Parallel()
	return &migration{fixture: newFixture(t, leaderelection.LockTypeLease), t: t, defaultRevision: defaults.New("stable")}
}

// enter starts a replica. Its lease is short, so that a migration takes a minute.
func (m *migration) enter(name, revision string, lock leaderelection.LockType, options ...func(*leaderelection.Config)) *candidate {
	m.t.Helper()
	c := m.candidate(name, revision, append(options, watching(m.defaultRevision), func(c *leaderelection.Config) {
		c.Lock = lock
		c.LeaseDuration = 6 * time.Second
		c.RenewDeadline = 4 * time.Second
		c.RetryPeriod = time.Second
	})...).start(m.t)
	m.all = append(m.all, c)
	return c
}

func (m *migration) leads(c *candidate, why string) {
	m.t.Helper()
	eventually(m.t, c.name+" leads: "+why, c.Live)
}

func (m *migration) quit(c *candidate) {
	m.t.Helper()
	if err := c.Quit(); err != nil {
		m.t.Fatal(err)
	}
}

// configMap returns the state of the ConfigMap.
func (m *migration) configMap() k8sresourcelock.Snapshot {
	return m.as(leaderelection.LockTypeConfigMap).snapshot()
}

// lease returns the state of the Lease.
func (m *migration) lease() k8sresourcelock.Snapshot {
	return m.as(leaderelection.LockTypeLease).snapshot()
}

func (m *migration) as(lock leaderelection.LockType) *fixture {
	x := *m.fixture
	x.lock = lock
	return &x
}

// heldBy checks that the ConfigMap and the Lease have the holder.
func (m *migration) heldBy(holder string) {
	m.t.Helper()
	if a, b := m.configMap().Record.HolderIdentity, m.lease().Record.HolderIdentity; a != holder || b != holder {
		m.t.Errorf("the holders are %q and %q, want %q", a, b, holder)
	}
}

// The election moves from the ConfigMap to both and to the Lease. In each step old and new replicas of two revisions run, the
// default revision changes, one replica is replaced and one is lost.
func TestMigration_Steps(t *testing.T) {
	m := newMigration(t)
	const configMap, both, lease = leaderelection.LockTypeConfigMap, leaderelection.LockTypeMulti, leaderelection.LockTypeLease

	c1 := m.enter("c1", "stable", configMap)
	m.leads(c1, "alone, with the ConfigMap")
	c2 := m.enter("c2", "canary", configMap)

	b1 := m.enter("b1", "stable", both)
	m.quit(c1)
	m.leads(b1, "c1 was replaced; b1 is of the default revision")
	m.heldBy("b1")
	m.defaultRevision.Set("canary")
	m.leads(c2, "an old replica requests the lock")
	m.defaultRevision.Set("stable")
	m.leads(b1, "a new replica requests the lock")
	m.defaultRevision.Set("canary")
	m.leads(c2, "and back")
	c2.transport.cut.Store(true)
	m.leads(b1, "the old leader is lost: its lease has expired")
	b2 := m.enter("b2", "canary", both)
	m.leads(b2, "a new replica requests the lock from a new leader")
	b2.transport.cut.Store(true)
	m.leads(b1, "a new leader is lost")
	b2.transport.cut.Store(false)
	m.leads(b2, "it is back and requests the lock")
	m.quit(c2)
	m.heldBy("b2")

	l1 := m.enter("l1", "stable", lease)
	m.defaultRevision.Set("stable")
	eventually(t, "b1 or l1 leads", func() bool { return b1.Live() || l1.Live() })
	m.quit(b1)
	m.leads(l1, "b1 was replaced")
	l1.transport.cut.Store(true)
	m.leads(b2, "a new leader is lost: its lease has expired")
	l1.transport.cut.Store(false)
	m.leads(l1, "it is back and requests the lock")
	m.defaultRevision.Set("canary")
	m.leads(b2, "a replica of step two requests the lock")
	l2 := m.enter("l2", "canary", lease)
	m.quit(b2)
	m.leads(l2, "the last replica of step two has stopped")
	m.quit(l2)
	m.leads(l1, "one replica of step three remains")
	if got := m.lease(); got.Record.HolderIdentity != "l1" || got.Annotations["incumbent.dev/multilock"] != "" {
		t.Errorf("the Lease in the end: %+v, notes %v", got.Record, got.Annotations)
	}
	lives.Apart(t, m.all...)
}

// The election moves back: Lease, both, ConfigMap.
func TestMigration_StepsBack(t *testing.T) {
	m := newMigration(t)
	l := m.enter("l", "stable", leaderelection.LockTypeLease)
	m.leads(l, "alone, with the Lease")
	b1 := m.enter("b1", "stable", leaderelection.LockTypeMulti)
	b2 := m.enter("b2", "canary", leaderelection.LockTypeMulti)
	m.quit(l)
	eventually(t, "b1 or b2 leads", func() bool { return b1.Live() || b2.Live() })
	m.leads(b1, "l was replaced; b1 is of the default revision")
	m.defaultRevision.Set("canary")
	m.leads(b2, "handover within step two")
	c1 := m.enter("c1", "stable", leaderelection.LockTypeConfigMap)
	m.defaultRevision.Set("stable")
	eventually(t, "b1 or c1 leads", func() bool { return b1.Live() || c1.Live() })
	m.quit(b1)
	m.leads(c1, "b1 was replaced")
	c1.transport.cut.Store(true)
	m.leads(b2, "c1 is lost: its lease has expired")
	c1.transport.cut.Store(false)
	m.leads(c1, "it is back and requests the lock")
	m.quit(b2)
	if got := m.configMap(); got.Record.HolderIdentity != "c1" || !c1.Live() {
		t.Errorf("the ConfigMap in the end: %+v, c1 leads: %v", got.Record, c1.Live())
	}
	lives.Apart(t, m.all...)
}

// If one object of a MultiLock is deleted, the term of the leader ends and a candidate leads again with both.
func TestMigration_ObjectDeleted(t *testing.T) {
	for _, lock := range []leaderelection.LockType{leaderelection.LockTypeConfigMap, leaderelection.LockTypeLease} {
		t.Run(lock.String(), func(t *testing.T) {
			m := newMigration(t)
			a := m.enter("a", "stable", leaderelection.LockTypeMulti)
			m.leads(a, "alone")
			b := m.enter("b", "stable", leaderelection.LockTypeMulti)
			eventually(t, "b follows", b.follows("a"))
			m.as(lock).deleteLock()
			eventually(t, "the term of a ends", func() bool { return !a.Spans()[0].To.IsZero() })
			eventually(t, "a candidate leads again", func() bool { return len(a.Spans())+len(b.Spans()) > 1 && (a.Live() || b.Live()) })
			m.heldBy(map[bool]string{true: "a", false: "b"}[a.Live()])
			lives.Apart(t, m.all...)
		})
	}
}

// Replicas of earlier versions elect by one ConfigMap, newer ones by a Lease per revision.
func TestMigration_Predecessor(t *testing.T) {
	m := newMigration(t)
	old := m.enter("o1", "stable", leaderelection.LockTypeConfigMap)
	m.leads(old, "the earlier version is alone")
	perRevision := func(c *leaderelection.Config) {
		c.PerRevision = true
		c.Predecessor = &leaderelection.Predecessor{Name: election, Lock: leaderelection.LockTypeConfigMap}
	}
	stable := m.enter("n1", "stable", leaderelection.LockTypeLease, perRevision)
	canary := m.enter("n2", "canary", leaderelection.LockTypeLease, perRevision)
	for _, n := range []*candidate{stable, canary} {
		eventually(t, n.name+" waits for the earlier version", func() bool { return n.Status().Waiting })
		if n.Live() || n.IsLeader() {
			t.Errorf("%s leads while the earlier version leads", n.name)
		}
	}
	m.quit(old)
	m.leads(stable, "the earlier version has stopped")
	m.leads(canary, "the other revision leads too")
	eventually(t, "the ConfigMap is released", func() bool { return m.configMap().Record.HolderIdentity == "" })
	lives.Apart(t, old, stable)
	lives.Apart(t, old, canary)
}
