package migration

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// perRevision configures a lock per revision, with the ConfigMap as predecessor.
func perRevision(c *leaderelection.Config) {
	c.PerRevision = true
	c.Predecessor = &leaderelection.Predecessor{Name: election, Lock: leaderelection.LockTypeConfigMap}
}

// Replicas of earlier versions elect by one ConfigMap, newer ones by a Lease per revision.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	old := s.enter("o1", "stable", leaderelection.LockTypeConfigMap)
	s.leads(old, "the earlier version is alone")

	stable := s.enter("n1", "stable", leaderelection.LockTypeLease, perRevision)
	canary := s.enter("n2", "canary", leaderelection.LockTypeLease, perRevision)
	for _, n := range []*replica{stable, canary} {
		s.eventually(n.name+" waits for the earlier version", func() bool { return n.Status().Waiting })
		if n.Live() || n.IsLeader() {
			t.Errorf("%s works while the earlier version leads", n.name)
		}
	}
	s.must(old.Quit())
	s.leads(stable, "the earlier version has stopped")
	s.leads(canary, "the other revision works too")
	s.eventually("the ConfigMap is released", func() bool { return s.configMap().Record.HolderIdentity == "" })
	spans := lives.Apart(s.t, old, stable) + lives.Apart(s.t, old, canary)
	t.Logf("compared %d periods of work", spans)
}
