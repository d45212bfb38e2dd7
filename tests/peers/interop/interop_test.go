package interop

import (
	"slices"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// ours adds another incumbent candidate to the election.
func (s *stage) ours(name string) *member { return s.enter(electors.Incumbent, name) }

func TestRelease(t *testing.T) {
	each(t, pairings, func(_ *testing.T, s *stage, p pairing) {
		first := s.enter(p.first, "first")
		s.leads(first)
		second := s.enter(p.second, "second")
		s.joined(second)
		s.steady(first)
		first.Stop()
		s.leads(second)
		third := s.ours("third")
		s.joined(third)
		s.steady(second)
		second.Stop()
		s.leads(third)
	})
}

// The leader is cut off, and reconnected after a successor leads. Its late requests must do no harm.
func TestCrash(t *testing.T) {
	for name, fate := range map[string]relay.Fate{"reset": reset, "stalled": relay.Stalled} {
		t.Run(name, func(t *testing.T) {
			each(t, pairings, func(t *testing.T, s *stage, p pairing) {
				first := s.enter(p.first, "first")
				s.leads(first)
				second := s.enter(p.second, "second")
				s.joined(second)
				s.steady(first)
				first.connections(fate)
				s.leads(second)
				s.stops(first)
				first.connections(open)
				third := s.ours("third")
				s.joined(third)
				s.joined(first)
				second.connections(fate)
				s.stops(second)
				harness.Until(t, "another member leads", anyOf(first, third))
				second.connections(open)
			})
		})
	}
}

// A client-go leader without responses runs longer than its lease. PeerGrace covers that.
func TestPeerGrace(t *testing.T) {
	each(t, []pairing{{electors.Lease, electors.ClientGo, electors.Incumbent}}, func(_ *testing.T, s *stage, p pairing) {
		first := s.enter(p.first, "first")
		s.leads(first)
		grace := timing.Retry + 2*timing.Deadline - timing.Lease + time.Second
		second := s.enter(p.second, "second", func(spec *electors.Spec) { spec.PeerGrace = grace })
		s.joined(second)
		first.connections(relay.Stalled)
		s.leads(second)
		s.stops(first)
	})
}

func TestRemote_Preempted(t *testing.T) {
	each(t, ranked[:2], func(_ *testing.T, s *stage, p pairing) {
		remote := s.enter(p.first, "remote", func(spec *electors.Spec) { spec.Remote = true })
		s.leads(remote)
		local := s.enter(p.second, "local")
		s.leads(local)
		s.stops(remote)
		local.Stop()
		s.leads(remote)
	})
}

// Each revision has its own lock, which incumbent and istiod share.
func TestPerRevision(t *testing.T) {
	for _, p := range ranked[2:] {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, p.lock, election+"-"+stable)
			of := func(revision string) func(*electors.Spec) {
				return func(spec *electors.Spec) {
					spec.Election, spec.PerRevision, spec.Revision = election, true, revision
				}
			}
			first := s.enter(p.first, "first", of(stable))
			s.leads(first)
			second := s.enter(p.second, "second", of(stable))
			s.joined(second)
			// Another revision has another lock, which this stage does not check.
			other := newStage(t, p.lock, election+"-"+canary)
			elsewhere := other.enter(p.second, "elsewhere", of(canary))
			other.leads(elsewhere)
			harness.Until(t, "elsewhere holds its lock", func() bool { return other.journal.holder() == elsewhere.Identity })
			first.Stop()
			s.leads(second)
		})
	}
}

func TestDeletedLock(t *testing.T) {
	each(t, pairings, func(t *testing.T, s *stage, p pairing) {
		first := s.enter(p.first, "first")
		s.leads(first)
		second, third := s.enter(p.second, "second"), s.ours("third")
		s.joined(second)
		s.joined(third)
		s.steady(first)
		s.deleteLock()
		harness.Until(t, "there is a new lock", s.journal.recreated)
		harness.Until(t, "a member leads with the new lock", func() bool {
			holder := s.journal.holder()
			return slices.ContainsFunc(s.members, func(m *member) bool { return m.Identity == holder && m.Live() })
		})
		s.stopOthers()
	})
}

// Candidates of all libraries take part in one election. The test stops each leader in turn.
func TestThreeElectors(t *testing.T) {
	t.Parallel()
	s := newStage(t, electors.Lease, election)
	for name, library := range map[string]electors.Library{
		"ours-1": electors.Incumbent, "ours-2": electors.Incumbent, "istio-1": electors.Istio, "istio-2": electors.Istio,
		"go-1": electors.ClientGo, "go-2": electors.ClientGo,
	} {
		s.joined(s.enter(library, name))
	}
	left := append([]*member{}, s.members...)
	for len(left) > 0 {
		harness.Until(t, "a remaining member leads", anyOf(left...))
		for i, m := range left {
			if m.Live() {
				m.Stop()
				left = append(left[:i], left[i+1:]...)
				break
			}
		}
	}
}
