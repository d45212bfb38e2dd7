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
func (m *migration) enter(name, revision string, lock leaderelection.LockType) *candidate {
	m.t.Helper()
	c := m.candidate(name, revision, watching(m.defaultRevision), func(c *leaderelection.Config) {
		c.Lock = lock
		c.LeaseDuration = 6 * time.Second
		c.RenewDeadline = 4 * time.Second
		c.RetryPeriod = time.Second
	}).start(m.t)
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
