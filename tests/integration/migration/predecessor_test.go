package migration

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// perRevision makes a replica of the new kind: an election per revision, by a Lease,
// that comes in place of the one ConfigMap.
func perRevision(c *leaderelection.Config) {
	c.PerRevision = true
	c.Predecessor = &leaderelection.Predecessor{Name: election, Lock: leaderelection.ConfigMapLock}
}

// Gateway status was guarded by one ConfigMap for all revisions, and is by a Lease for
// each. While a replica of the old kind works nobody of the new kind does, and the other
// way round, in the upgrade as in the way back.
func TestPredecessor(t *testing.T) {
	s := newStage(t)
	const configMap, lease = leaderelection.ConfigMapLock, leaderelection.LeaseLock

	o1 := s.enter("o1", "stable", configMap)
	s.leads(o1, "the old kind, alone")
	o2 := s.enter("o2", "canary", configMap)

	n1 := s.enter("n1", "stable", lease, perRevision)
	n2 := s.enter("n2", "canary", lease, perRevision)
	for _, n := range []*replica{n1, n2} {
		s.eventually(n.name+" leads its election and waits for the predecessor", func() bool { return n.Status().Waiting })
		if n.Live() || n.IsLeader() {
			t.Errorf("%s works beside the old kind", n.name)
		}
	}
	s.must(o1.Quit())
	s.leads(n1, "the old leader was replaced")
	s.leads(n2, "its revision's leader too, beside the other's")
	if kept := s.configMap(); !kept.KeptForSuccessors() || kept.Record.HolderKey != "stable" {
		t.Errorf("the ConfigMap: %+v, notes %v", kept.Record, kept.Notes)
	}

	// The one that took the ConfigMap is lost. The other keeps it.
	n1.cut(true)
	from := s.configMap().Record.RenewTime.Time
	s.eventually("the ConfigMap is renewed for two leases", func() bool {
		return s.configMap().Record.RenewTime.After(from.Add(2 * leaseDuration))
	})
	if o2.Live() || n1.Live() || !n2.Live() {
		t.Errorf("works: old %v, cut off %v, other %v", o2.Live(), n1.Live(), n2.Live())
	}
	n1.cut(false)
	s.leads(n1, "it is back")

	// The way back.
	s.must(n1.Quit())
	s.must(n2.Quit())
	s.leads(o2, "the new kind is rolled back: a lease later")

	// And forward again.
	n3 := s.enter("n3", "stable", lease, perRevision)
	s.eventually("n3 waits", func() bool { return n3.Status().Waiting })
	s.must(o2.Quit())
	s.leads(n3, "the last of the old kind has gone")

	// Whoever is of the old kind is alone; of the new kind one works in each revision.
	spans := lives.Apart(s.t, o1, o2, n1, n3) + lives.Apart(s.t, o1, o2, n2)
	t.Logf("%d spans of work compared", spans)
}

// Somebody with rights takes the ConfigMap away: the functions stop, and start again
// when it is held again.
func TestPredecessorIsTaken(t *testing.T) {
	s := newStage(t)
	n := s.enter("n1", "stable", leaderelection.LeaseLock, perRevision)
	s.leads(n, "alone")
	before := len(n.Spans()) // a slow moment may have ended one
	taken := s.configMap()
	record := taken.Record
	record.HolderIdentity, record.RenewTime.Time = "istiod", record.RenewTime.Add(time.Second)
	record.LeaderTransitions++
	s.takeConfigMap(record)
	s.eventually("n1 stops", func() bool { return len(n.Spans()) > before || !n.Live() })
	s.eventually("n1 works again", func() bool { return len(n.Spans()) > before })
	lives := n.Spans()[before-1:]
	if gap := lives[1].From.Sub(lives[0].To); gap < leaseDuration-time.Second {
		t.Errorf("n1 came back %v after the ConfigMap was taken, sooner than a lease", gap)
	}
}

// takeConfigMap writes a record as an istiod does, which leaves our notes.
func (s *stage) takeConfigMap(record k8sresourcelock.LeaderElectionRecord) {
	s.t.Helper()
	s.eventually("an istiod takes the ConfigMap", func() bool {
		lock := &k8sresourcelock.ConfigMapLock{Client: s.admin.CoreV1(), LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "istiod"}}
		lock.ConfigMapMeta.Namespace, lock.ConfigMapMeta.Name = s.namespace, election
		if _, _, err := lock.Get(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		return lock.Update(s.t.Context(), record) == nil
	})
}
