package migration

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// A migration as an operator does it: ConfigMap, both, Lease. At each step old and new
// replicas of two revisions are there together, the default revision moves, a replica
// is replaced in order and one is lost.
func TestSteps(t *testing.T) {
	s := newStage(t)
	const configMap, both, lease = leaderelection.LockTypeConfigMap, leaderelection.LockTypeMulti, leaderelection.LockTypeLease

	c1 := s.enter("c1", "stable", configMap)
	s.leads(c1, "alone, by the ConfigMap")
	c2 := s.enter("c2", "canary", configMap)

	b1 := s.enter("b1", "stable", both)
	s.must(c1.Quit())
	s.leads(b1, "c1 was replaced; b1 is of the default revision")
	if got := s.holders(); got != "b1/b1" {
		t.Errorf("holders %s", got)
	}
	s.defaultRevision.Set("canary")
	s.leads(c2, "an old replica asks a new leader")
	s.defaultRevision.Set("stable")
	s.leads(b1, "a new replica asks an old leader")
	s.defaultRevision.Set("canary")
	s.leads(c2, "and back")
	c2.cut(true)
	s.leads(b1, "the old leader is lost: its lease is waited for")
	b2 := s.enter("b2", "canary", both)
	s.leads(b2, "a new replica asks a new leader")
	b2.cut(true)
	s.leads(b1, "a new leader is lost")
	b2.cut(false)
	s.leads(b2, "it is back, and asks")
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
	s.leads(b2, "a new leader is lost: its lease is waited for")
	l1.cut(false)
	s.leads(l1, "it is back, and asks")
	s.defaultRevision.Set("canary")
	s.leads(b2, "a new leader is asked by one that holds both")
	l2 := s.enter("l2", "canary", lease)
	s.must(b2.Quit())
	s.leads(l2, "the last of step two has gone")
	s.must(l2.Quit())
	s.leads(l1, "the first of step three is left")
	if got := s.lease(); got.Record.HolderIdentity != "l1" || got.Annotations["incumbent.dev/multilock"] != "" {
		t.Errorf("the Lease in the end: %+v, notes %v", got.Record, got.Annotations)
	}
	spans := lives.Apart(s.t, s.all...)
	t.Logf("%d spans of work, never two at once", spans)
}
