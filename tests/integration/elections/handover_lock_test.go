package elections

import (
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// What somebody's hand can do to a lock while it is being handed over.
var hands = map[string]func(t *testing.T, s *stage){
	"deleted": func(t *testing.T, s *stage) { s.deleteLock(t) },
	"emptied": func(t *testing.T, s *stage) { s.empty(t) },
}

func eachHand(t *testing.T, f func(t *testing.T, s *stage, c *chronicle, hand func(*testing.T, *stage))) {
	t.Parallel()
	for name, hand := range hands {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) { f(t, s, s.chronicle(t), hand) })
		})
	}
}

// While the leader drains: it loses its term, and whoever takes the lock waits for its
// functions or for the last instant at which they may run.
func TestLockIsTakenAwayWhileTheLeaderDrains(t *testing.T) {
	eachHand(t, func(t *testing.T, s *stage, c *chronicle, hand func(*testing.T, *stage)) {
		a, b, _ := s.pair(t, brisk)
		s.flipUntilDrain(t, a)
		hand(t, s)
		eventually(t, "a has lost its term", func() bool { return !a.IsLeader() })
		if b.Live() {
			t.Error("b runs while a's function does")
		}
		a.relent()
		eventually(t, "b leads", b.Live)
		c.endsTerm(t)
		b.after(t, a)
		lives.Apart(t, a, b)
	})
}

// endsTerm fails the test if a handover was stored that belongs to the term which
// somebody's hand has ended: a new one has to be asked for anew.
func (c *chronicle) endsTerm(t *testing.T) {
	t.Helper()
	next := ""
	eventually(t, "the lock is somebody's again", func() bool {
		steps := c.steps()
		at := slices.IndexFunc(steps, func(step string) bool { return step == "gone" || step == "empty" })
		if at < 0 || at+1 == len(steps) {
			return false
		}
		next = steps[at+1]
		return true
	})
	if strings.Contains(next, "nominated") {
		t.Errorf("somebody's hand is followed by %q", next)
	}
}

// While the handover is under way: it is refused.
func TestLockIsTakenAwayFromTheHandover(t *testing.T) {
	eachHand(t, func(t *testing.T, s *stage, c *chronicle, hand func(*testing.T, *stage)) {
		a, b, _ := s.pair(t, brisk)
		handover := s.flipUntil(t, a.wire.hold(passing))
		hand(t, s)
		handover.letGo()
		eventually(t, "b leads", b.Live)
		c.endsTerm(t)
		lives.Apart(t, a, b)
	})
}

// While the nominee's first write is under way: it is refused.
func TestLockIsTakenAwayFromTheNominee(t *testing.T) {
	eachHand(t, func(t *testing.T, s *stage, c *chronicle, hand func(*testing.T, *stage)) {
		a, b, _ := s.pair(t, brisk)
		first := s.flipUntil(t, b.wire.hold(taking))
		hand(t, s)
		first.letGo()
		eventually(t, "b leads", b.Live)
		c.endsTerm(t)
		lives.Apart(t, a, b)
	})
}

// A process that comes back under its name in each phase of a handover.

func TestChallengerRestarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		s.flipUntilDrain(t, a)
		b.die()
		again := s.enterRanked(t, "b", "canary")
		eventually(t, "the new b follows", again.follows("a"))
		a.relent()
		eventually(t, "the new b leads", again.Live)
		// It did not ask: it releases what was handed to it, and takes the free lock, or
		// asks for it if a slow moment lets a be quicker.
		if next := c.next(t, append(passes("a", "b", 0), "nobody 1")...); next != "b 2, leads" && next != "a 2, leads" {
			t.Errorf("the release is followed by %q", next)
		}
		lives.Apart(t, a, b, again)
	})
}

// The same before its request was accepted: its leader accepts what nobody stands by any more.
func TestChallengerRestartsBeforeItIsAccepted(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		accepting := s.flipUntil(t, a.wire.hold(accepts))
		b.die()
		again := s.enterRanked(t, "b", "canary")
		eventually(t, "the new b follows", again.follows("a"))
		accepting.letGo()
		eventually(t, "the new b leads", again.Live)
		c.never(t, "refuses")
		b.neverRan(t)
		lives.Apart(t, a, again)
	})
}

func TestNomineeRestarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		s.flipUntil(t, b.wire.hold(taking))
		b.die()
		again := s.enterRanked(t, "b", "canary")
		eventually(t, "somebody leads", func() bool { return a.Live() || again.Live() })
		eventually(t, "the new b leads", again.Live)
		c.never(t, "b 1, leads")
		lives.Apart(t, a, b, again)
	})
}

// The leader dies while it drains, with an accepted request: under its name a new term
// begins, to which that request is nothing.
func TestDrainingLeaderRestarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		s.flipUntilDrain(t, a)
		a.die()
		again := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "b leads", b.Live)
		c.expect(t, append(append(passes("a", "b", 0)[:3], passes("a", "b", 1)...), "b 2, leads")...)
		if len(again.Spans()) != 1 {
			t.Errorf("the new a ran %v", again.Spans())
		}
		lives.Apart(t, a, b, again)
	})
}

// The leader has drained and dies before its handover arrives.
func TestReleasingLeaderRestarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		s.flipUntil(t, a.wire.hold(passing))
		a.die()
		again := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "b leads", b.Live)
		c.expect(t, append(append(passes("a", "b", 0)[:3], passes("a", "b", 1)...), "b 2, leads")...)
		lives.Apart(t, a, b, again)
	})
}

// A process that settles dies: the next of its name finds a record of that name without
// a marker, and settles a full lease anew.
func TestSettlingHolderRestarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "canary")
		s.put(t, record{"istiod", "stable", int(briskLease / time.Second), 3})
		b := s.enterRanked(t, "b", "canary", brisk)
		c.await(t, "b 4")
		b.die()
		again := s.enterRanked(t, "b", "canary", brisk)
		eventually(t, "the new b leads", again.Live)
		again.notBefore(t, c.firstSeen(t, "b 5").Add(briskLease-seenApart), "a lease had run out since it saw the record")
		c.expect(t, "istiod 3", "b 4", "b 5", "b 5, leads")
		b.neverRan(t)
	})
}

// Two live processes of one name: a mistake in a deployment. It is named, and it ends
// with one of them at work.
func TestTwoProcessesOfOneName(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "stable")
		one := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "the first leads", one.Live)
		two := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "it is named", func() bool {
			return strings.Contains(one.log.String()+two.log.String(), "another live process uses this identity")
		})
		eventually(t, "the first has stepped down", func() bool { return !one.Spans()[0].To.IsZero() })
		eventually(t, "one of them works", func() bool { return one.Live() != two.Live() })
		terms := len(one.Spans()) + len(two.Spans())
		c.renewals(t, 4)
		if one.Live() == two.Live() || len(one.Spans())+len(two.Spans()) != terms {
			t.Errorf("they take it from each other: the first ran %v, the second %v", one.Spans(), two.Spans())
		}
	})
}

// The challenger has a double: the nomination is for one name, and compare-and-swap lets
// one of them take it.
func TestTwoChallengersOfOneName(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		double := s.enterRanked(t, "b", "canary", brisk)
		eventually(t, "the double follows", double.follows("a"))
		s.setDefault(t, "canary")
		c.await(t, "b 1, nominated")
		eventually(t, "one of them works", func() bool { return b.Live() != double.Live() })
		lives.Apart(t, a, b)
		lives.Apart(t, a, double)
	})
}

// Per-revision elections do not know rank: a flip moves nothing, and a successor is of
// the same revision.
func TestPerRevisionKnowsNoRank(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	per := func(c *leaderelection.Config) { c.PerRevision = true }
	s.setDefault(t, "stable")
	stable, next, canary := s.enterRanked(t, "a", "stable", per), s.enterRanked(t, "b", "stable", per), s.enterRanked(t, "c", "canary", per)
	first := leader(t, stable, next)
	eventually(t, "canary leads its own", canary.Live)
	s.setDefault(t, "canary")
	second := map[*replica]*replica{stable: next, next: stable}[first]
	if err := first.Quit(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other of stable follows", second.Live)
	if len(canary.Spans()) != 1 || !canary.Live() || len(first.Spans()) != 1 {
		t.Errorf("canary ran %v, the first of stable %v", canary.Spans(), first.Spans())
	}
	if leaderelection.LocationPrioritizedComparison("stable", canary.LeaderElection) {
		t.Error("a per-revision election claims a rank")
	}
	lives.Apart(t, stable, next)
}

// Of one revision, the local candidate goes before the remote one: it asks, and says why.
func TestLocalGoesBeforeRemote(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		remote := s.enterRanked(t, "remote", "stable", func(c *leaderelection.Config) { c.Remote = true })
		s.setDefault(t, "stable")
		eventually(t, "remote leads", remote.Live)
		if id, key := remote.Leader(); id != "remote" || key != "^stable" {
			t.Errorf("the record names %q with the key %q", id, key)
		}
		local := s.enterRanked(t, "local", "stable")
		eventually(t, "local leads", local.Live)
		c.expect(t, append(passes("remote", "local", 0), "local 1, leads")...)
		for _, state := range c.all() {
			if r := requestIn(state.Notes); r.Identity != "" && r.Reason != "local-over-remote" {
				t.Errorf("it asked for the reason %q", r.Reason)
			}
		}
		lives.Apart(t, remote, local)
	})
}

// The default revision goes before place, and a remote candidate of it too.
func TestDefaultGoesBeforeLocal(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "stable")
		local := s.enterRanked(t, "local", "stable")
		eventually(t, "local leads", local.Live)
		remote := s.enterRanked(t, "remote", "canary", func(c *leaderelection.Config) { c.Remote = true })
		eventually(t, "remote follows", remote.follows("local"))
		s.setDefault(t, "canary")
		eventually(t, "remote leads", remote.Live)
		c.expect(t, append(passes("local", "remote", 0), "remote 1, leads")...)
		lives.Apart(t, remote, local)
	})
}

// A remote peer, which cannot be asked, is preempted by a local candidate.
func TestLocalPreemptsARemotePeer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.put(t, record{"istiod", "^stable", int(briskLease / time.Second), 3})
		a := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		a.notBefore(t, c.firstSeen(t, "a 4").Add(briskLease-seenApart), "istiod's lease had run out")
		c.expect(t, "istiod 3", "a 4", "a 4, leads")
	})
}

// ENABLE_LEADER_ELECTION=false: everybody works, whatever the record says.
func TestDisabledByTheEnvironment(t *testing.T) {
	t.Setenv("ENABLE_LEADER_ELECTION", "false")
	s := newStage(t, leaderelection.LeaseLock)
	s.put(t, record{"istiod", "stable", 60, 3})
	c := s.chronicle(t)
	for _, name := range []string{"a", "b"} {
		r := s.replica(name, "stable")
		r.LeaderElection = leaderelection.NewLeaseLeaderElection(s.namespace, name, election, "stable", r.client)
		r.AddRunContext(r.work)
		r.start(t)
		eventually(t, name+" works", r.Live)
		if err := r.Quit(); err != nil || r.Live() {
			t.Errorf("%s ended with %v, live %v", name, err, r.Live())
		}
	}
	c.expect(t, "istiod 3")
}
