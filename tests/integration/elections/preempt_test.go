package elections

import (
	"context"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// peer works as istiod does: it renews its record each RetryPeriod, and stops working when
// it finds at a renewal that the record is another's. It heeds no annotation.
type peer struct {
	name string
	mu   sync.Mutex
	life lives.Span
	lost chan struct{}
}

// peerRetry is how long a peer may work on after it was overwritten.
const peerRetry = 500 * time.Millisecond

// enterPeer writes a peer into the lock, whoever holds it, and keeps it there.
func (s *stage) enterPeer(t *testing.T, r record) *peer {
	t.Helper()
	p := &peer{name: r.holder, lost: make(chan struct{})}
	s.put(t, r)
	p.life.From = time.Now()
	lock := s.observer(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var working sync.WaitGroup
	working.Go(func() {
		defer close(p.lost)
		defer p.stop()
		tick := time.NewTicker(peerRetry)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			snap, err := lock.Read(ctx)
			if err != nil || snap.Record.HolderIdentity != r.holder {
				return
			}
			next := snap.Record
			next.RenewTime.Time = time.Now()
			if _, err := lock.Write(ctx, snap, next, snap.Notes); err != nil && !k8sresourcelock.IsConflict(err) {
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); working.Wait() })
	return p
}

func (p *peer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.To = time.Now()
}

// work is when the peer worked, as lives.Apart wants it.
func (p *peer) work() *replica {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &replica{name: p.name, Recorder: lives.Recorded(p.life)}
}

// A holder that cannot be asked is preempted by Istio's key rule, and its lease is
// waited for while ours is renewed.
func TestPreemptsAPeerAndSettles(t *testing.T) {
	for name, grace := range map[string]time.Duration{"without grace": 0, "with grace": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) {
				c := s.chronicle(t)
				s.setDefault(t, "canary")
				istiod := s.enterPeer(t, record{"istiod", "stable", int(briskLease / time.Second), 3})
				b := s.enterRanked(t, "b", "canary", brisk, func(c *leaderelection.Config) { c.PeerGrace = grace })
				c.await(t, "b 4")
				eventually(t, "b leads", b.Live)
				taken := c.firstSeen(t, "b 4")
				b.notBefore(t, taken.Add(briskLease+grace-peerRetry-seenApart), "istiod's lease and the grace had run out")
				within(t, "the peer's end", istiod.lost)
				c.expect(t, "istiod 3", "b 4", "b 4, leads")
				lives.Apart(t, b, istiod.work())
			})
		})
	}
}

// PreemptImmediately is Istio's behaviour: it acts on the acknowledgement.
func TestPreemptImmediately(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "canary")
		s.put(t, record{"istiod", "stable", 3600, 3})
		b := s.enterRanked(t, "b", "canary", func(c *leaderelection.Config) { c.PreemptImmediately = true })
		eventually(t, "b leads, an hour before that lease has run out", b.Live)
		c.expect(t, "istiod 3", "b 4, leads")
	})
}

// Nor does it preempt one of its own kind without being handed the lock.
func TestPreemptImmediatelyStillAsksThoseWhoCanBeAsked(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, func(c *leaderelection.Config) { c.PreemptImmediately = true })
		s.setDefault(t, "canary")
		eventually(t, "b leads", b.Live)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		lives.Apart(t, a, b)
	})
}

// A peer of equal or higher rank, or any while the default is not known, is not preempted.
func TestPeersThatAreNotPreempted(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct{ key, defaultRevision string }{
		"same revision":                {"canary", "canary"},
		"the default is another":       {"stable", "stable"},
		"neither is the default":       {"stable", "third"},
		"there is no default":          {"stable", ""},
		"a key of nobody":              {"", "stable"},
		"remote, of another revision":  {"^stable", "third"},
		"remote, of the default":       {"^stable", "stable"},
		"one's own, though it be null": {"canary", ""},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) {
				c := s.chronicle(t)
				if k.defaultRevision != "" {
					s.setDefault(t, k.defaultRevision)
				}
				s.enterPeer(t, record{"istiod", k.key, 60, 3})
				b := s.enterRanked(t, "b", "canary", brisk)
				eventually(t, "b follows", b.follows("istiod"))
				c.renewals(t, 4)
				c.expect(t, "istiod 3")
			})
		})
	}
}

// Being overwritten ends the term at once, and nothing of ours is written over it.
func TestOverwrittenByAPeer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		istiod := s.enterPeer(t, record{"istiod", "stable", int(briskLease / time.Second), 1})
		eventually(t, "a stops", func() bool { return !a.Live() && !a.IsLeader() })
		if why := a.Status().Reason; why != "superseded" {
			t.Errorf("a stopped because %s", why)
		}
		c.renewals(t, 4) // of istiod; its equal does not take the lock back, b does not outrank it
		c.expect(t, "a 0, leads", "istiod 1, marker of a 0 handover")
		if len(a.Spans()) != 1 || len(b.Spans()) != 0 {
			t.Errorf("a ran %v, b ran %v", a.Spans(), b.Spans())
		}
		lives.Apart(t, b, istiod.work())
	})
}

// A peer steals the lock between the acceptance and the handover: what the leader would
// have written is not written over it, and the challenger is not nominated.
func TestPeerStealsWhileTheLeaderDrains(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		s.flipUntilDrain(t, a)
		istiod := s.enterPeer(t, record{"istiod", "canary", int(briskLease / time.Second), 1})
		a.relent()
		c.renewals(t, 4)
		c.never(t, "nominated")
		if len(a.Spans()) != 1 || len(b.Spans()) != 0 {
			t.Errorf("a ran %v, b ran %v", a.Spans(), b.Spans())
		}
		c.expect(t, append(passes("a", "b", 0)[:3], "istiod 1, marker of a 0 handover, accepts b")...)
		lives.Apart(t, b, istiod.work())
	})
}

// The handover itself is under way when the peer steals: it is refused.
func TestPeerStealsWhileTheHandoverIsUnderWay(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		handover := s.flipUntil(t, a.wire.hold(passing))
		istiod := s.enterPeer(t, record{"istiod", "canary", int(briskLease / time.Second), 1})
		handover.letGo()
		c.renewals(t, 4)
		c.never(t, "nominated")
		if len(a.Spans()) != 1 || len(b.Spans()) != 0 {
			t.Errorf("a ran %v, b ran %v", a.Spans(), b.Spans())
		}
		lives.Apart(t, a, b, istiod.work())
	})
}

// The peer steals from a nominee whose first write is under way: it is refused, and the
// nominee never acts. If it outranks the peer it preempts, and settles.
func TestPeerStealsFromTheNominee(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		first, over := b.wire.hold(taking), a.wire.hold(taking) // a would take the lock from a nominee that does not come
		s.setDefault(t, "canary")
		first.await(t)
		istiod := s.enterPeer(t, record{"istiod", "stable", int(briskLease / time.Second), 2})
		first.letGo()
		over.letGo()
		eventually(t, "b leads", b.Live)
		c.never(t, "b 1, leads")
		b.notBefore(t, c.firstSeen(t, "istiod 2, nominee b").Add(briskLease-seenApart), "istiod's lease had run out")
		lives.Apart(t, a, b, istiod.work())
	})
}

// Two that do not agree on the default each outrank the other, and neither can be asked
// while it settles. They give each other room in the end.
func TestDisagreementLeavesTheLockToSomebody(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.setDefault(t, "stable")
		a, b := s.ranked(t, "a", "stable", brisk), s.ranked(t, "b", "canary", brisk)
		a.wire.mute(webhooks)
		s.setDefault(t, "canary")
		s.put(t, record{"istiod", "old", int(briskLease / time.Second), 3})
		a.start(t)
		eventually(t, "a settles", func() bool { return a.Status().Phase == "settling" })
		b.start(t)
		eventually(t, "b knows another default", func() bool { return b.Status().Default == "canary" })
		leader(t, a, b)
		lives.Apart(t, a, b)
	})
}
