package migration

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// The election moves from the ConfigMap to both and to the Lease. In each step old and new replicas of two
// revisions run, the default revision changes, one replica is replaced and one is lost.
func TestSteps(t *testing.T) {
	s := newStage(t)
	const configMap, both, lease = leaderelection.LockTypeConfigMap, leaderelection.LockTypeMulti, leaderelection.LockTypeLease

	c1 := s.enter("c1", "stable", configMap)
	s.leads(c1, "alone, with the ConfigMap")
	c2 := s.enter("c2", "canary", configMap)

	b1 := s.enter("b1", "stable", both)
	s.must(c1.Quit())
	s.leads(b1, "c1 was replaced; b1 is of the default revision")
	if got := s.holders(); got != "b1/b1" {
		t.Errorf("holders %s", got)
	}
	s.defaultRevision.Set("canary")
	s.leads(c2, "an old replica requests the lock")
	s.defaultRevision.Set("stable")
	s.leads(b1, "a new replica requests the lock")
	s.defaultRevision.Set("canary")
	s.leads(c2, "and back")
	c2.cut(true)
	s.leads(b1, "the old leader is lost: its lease has expired")
	b2 := s.enter("b2", "canary", both)
	s.leads(b2, "a new replica requests the lock from a new leader")
	b2.cut(true)
	s.leads(b1, "a new leader is lost")
	b2.cut(false)
	s.leads(b2, "it is back and requests the lock")
	s.must(c2.Quit())
	if got := s.holders(); got != "b2/b2" {
		t.Errorf("holders %s", got)
	}

	l1 := s.enter("l1", "stable", lease)
	s.defaultRevision.Set("stable")
	s.eventually("b1 or l1 leads", func() bool { return b1.Live() || l1.Live() })
	s.must(b1.Quit())
	s.leads(l1, "b1 was replaced")
	l1.cut(true)
	s.leads(b2, "a new leader is lost: its lease has expired")
	l1.cut(false)
	s.leads(l1, "it is back and requests the lock")
	s.defaultRevision.Set("canary")
	s.leads(b2, "a replica of step two requests the lock")
	l2 := s.enter("l2", "canary", lease)
	s.must(b2.Quit())
	s.leads(l2, "the last replica of step two has stopped")
	s.must(l2.Quit())
	s.leads(l1, "one replica of step three remains")
	if got := s.lease(); got.Record.HolderIdentity != "l1" || got.Annotations["incumbent.dev/multilock"] != "" {
		t.Errorf("the Lease in the end: %+v, notes %v", got.Record, got.Annotations)
	}
	spans := lives.Apart(s.t, s.all...)
	t.Logf("%d terms, none at the same time", spans)
}
