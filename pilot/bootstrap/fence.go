package bootstrap

import (
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// FencedElections returns the elections of a server with the writes that a fence can guard. An election that the configuration
// disables has none, because guarded writes are rejected while a lock is missing. The fence guards its lock anyway, so that each
// configuration has the same guards of locks.
func FencedElections(config Config) []install.Election {
	var all []install.Election
	config = config.withDefaults()
	for _, row := range table {
		e := install.Election{ID: row.id, Lease: row.lease, PerRevision: row.perRevision, Coordinated: !row.perRevision && !row.uncoordinated}
		if row.on == nil || row.on(config) {
			e.Guards = row.writes
		}
		all = append(all, e)
	}
	return all
}

// newSelfTest returns the self-test of the fence, or nil if the configuration has no fence.
func (s *site) newSelfTest() *install.SelfTest {
	if !s.config.Fence || s.config.Disabled {
		return nil
	}
	test := install.NewSelfTest(s.own, install.SelfTestConfig{Events: s.events, Logger: s.log, Interval: s.config.fenceEvery})
	s.metrics.MustRegister(test)
	return test
}

// testFence adds an election to the self-test.
func (s *site) testFence(le *leaderelection.LeaderElection, row election) {
	if s.fence != nil {
		s.fence.Add(le.Status, row.writes)
		// The self-test runs whenever a term begins or ends.
		le.AddRunContext(s.fence.Wake.Around)
	}
}
