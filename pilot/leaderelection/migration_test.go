package leaderelection

import (
	"context"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// migration is an election whose replicas have different types of locks.
type migration struct {
	*testing.T
	*lockServer
	watcher *testWatcher // of all replicas
	all     []*migrating
}

// migrating is a replica of a migration.
type migrating struct {
	*candidate
	lives.Recorder
}

// Lives implements lives.Candidate.
func (r *migrating) Lives() (string, lives.Spans) { return r.cfg.Identity, r.Spans() }

// enter starts a replica.
func (m *migration) enter(name, revision string, lock LockType) *migrating {
	m.Helper()
	r := &migrating{candidate: m.candidate(m.T, name, func(c *Config) {
		c.Revision = revision
		c.Lock = lock
		c.DefaultWatcher = m.watcher
	})}
	r.AddRunContext(func(ctx context.Context) error {
		stopping, ended := r.Begin()
		defer ended()
		<-ctx.Done()
		stopping()
		return nil
	})
	r.starts(m.T)
	m.all = append(m.all, r)
	return r
}

// cut disconnects a replica, or connects it again.
func (r *migrating) cut(is bool) {
	var fault func(locktest.Verb) locktest.Fault
	if is {
		fault = func(locktest.Verb) locktest.Fault { return locktest.Fault{Err: locktest.ErrUnavailable} }
	}
	r.client.SetFault(fault)
	r.old.SetFault(fault)
}

func (m *migration) leads(r *migrating, why string) {
	m.Helper()
	for range 5 * int(playLease/time.Second) {
		if passes(time.Second); r.Live() {
			return
		}
	}
	m.Fatalf("%s does not lead: %s", r.cfg.Identity, why)
}

func (m *migration) quit(r *migrating) {
	m.Helper()
	if err := r.quits(); err != nil {
		m.Fatal(err)
	}
}

// heldBy checks that the ConfigMap and the Lease have the holder.
func (m *migration) heldBy(holder string) {
	m.Helper()
	if a, b := m.objects.Snapshot().Record.HolderIdentity, m.leases.Snapshot().Record.HolderIdentity; a != holder || b != holder {
		m.Errorf("the holders are %q and %q, want %q", a, b, holder)
	}
}

// The election moves from the ConfigMap to both and to the Lease. In each step old and new replicas of two revisions run, the
// default revision changes, one replica is replaced and one is lost.
func TestMigration_Steps(t *testing.T) {
	inBubble(t, func(t *testing.T, s *lockServer) {
		m := &migration{T: t, lockServer: s, watcher: newWatcher("stable")}
		c1 := m.enter("c1", "stable", LockTypeConfigMap)
		m.leads(c1, "alone, with the ConfigMap")
		c2 := m.enter("c2", "canary", LockTypeConfigMap)
		b1 := m.enter("b1", "stable", LockTypeMulti)
		m.quit(c1)
		m.leads(b1, "c1 was replaced; b1 is of the default revision")
		m.heldBy("b1")
		m.watcher.is("canary")
		m.leads(c2, "an old replica requests the lock")
		m.watcher.is("stable")
		m.leads(b1, "a new replica requests the lock")
		m.watcher.is("canary")
		m.leads(c2, "and back")
		c2.cut(true)
		m.leads(b1, "the old leader is lost: its lease has expired")
		b2 := m.enter("b2", "canary", LockTypeMulti)
		m.leads(b2, "a new replica requests the lock from a new leader")
		b2.cut(true)
		m.leads(b1, "a new leader is lost")
		b2.cut(false)
		m.leads(b2, "it is back and requests the lock")
		m.quit(c2)
		m.heldBy("b2")
		m.toLease(b1, b2)
		lives.Apart(t, m.all...)
	})
}

// toLease replaces the replicas with both locks by replicas with the Lease.
func (m *migration) toLease(b1, b2 *migrating) {
	m.Helper()
	l1 := m.enter("l1", "stable", LockTypeLease)
	m.watcher.is("stable")
	passes(playLease)
	if !b1.Live() && !l1.Live() {
		m.Error("no replica of the default revision leads")
	}
	m.quit(b1)
	m.leads(l1, "b1 was replaced")
	l1.cut(true)
	m.leads(b2, "a new leader is lost: its lease has expired")
	l1.cut(false)
	m.leads(l1, "it is back and requests the lock")
	m.watcher.is("canary")
	m.leads(b2, "a replica of step two requests the lock")
	l2 := m.enter("l2", "canary", LockTypeLease)
	m.quit(b2)
	m.leads(l2, "the last replica of step two has stopped")
	m.quit(l2)
	m.leads(l1, "one replica of step three remains")
	if got := m.leases.Snapshot(); got.Record.HolderIdentity != "l1" || got.Annotations["incumbent.dev/multilock"] != "" {
		m.Errorf("the Lease in the end: %+v, notes %v", got.Record, got.Annotations)
	}
	m.quit(l1)
}
