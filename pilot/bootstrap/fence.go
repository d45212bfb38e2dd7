package bootstrap

import (
	"context"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// FencedElections returns the elections of a server whose writes a fence can guard.
func FencedElections(config Config) []install.Election {
	var all []install.Election
	for _, row := range config.rows() {
		if len(row.writes) > 0 {
			all = append(all, install.Election{
				ID: row.id, Lease: row.lease, PerRevision: row.perRevision, Coordinated: !row.perRevision && !row.uncoordinated, Guards: row.writes,
			})
		}
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
		le.AddRunContext(func(ctx context.Context) error {
			s.fence.Wake()
			<-ctx.Done()
			s.fence.Wake()
			return nil
		})
	}
}
