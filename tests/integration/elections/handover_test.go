package elections

import (
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

// pair is a leader of stable, which is the default, and a follower of canary.
func (s *stage) pair(t *testing.T, change ...func(*leaderelection.Config)) (a, b *replica, c *chronicle) {
	t.Helper()
	c = s.chronicle(t)
	s.setDefault(t, "stable")
	a = s.enterRanked(t, "a", "stable", change...)
	eventually(t, "a leads", a.Live)
	b = s.enterRanked(t, "b", "canary", change...)
	eventually(t, "b follows", b.follows("a"))
	c.await(t, "a 0, leads")
	return a, b, c
}

// trio is a pair, and a second follower of stable.
func (s *stage) trio(t *testing.T) (a, b, third *replica, c *chronicle) {
	t.Helper()
	a, b, c = s.pair(t)
	third = s.enterRanked(t, "c", "stable")
	eventually(t, "c follows", third.follows("a"))
	return a, b, third, c
}

// flipUntilDrain makes canary the default, and leaves the leader draining until it relents.
func (s *stage) flipUntilDrain(t *testing.T, leader *replica) {
	t.Helper()
	leader.insist()
	s.setDefault(t, "canary")
	eventually(t, leader.name+" drains", leader.Draining)
}

// flipUntil makes canary the default, and returns once the write that f is for was sent.
func (s *stage) flipUntil(t *testing.T, f *fault) *fault {
	t.Helper()
	s.setDefault(t, "canary")
	f.await(t)
	return f
}

func (r *replica) follows(leader string) func() bool {
	return func() bool { id, _ := r.Leader(); return id == leader }
}

// after fails the test unless r's newest span began after every span of the others.
func (r *replica) after(t testing.TB, others ...*replica) {
	t.Helper()
	for _, other := range others {
		for _, x := range other.Spans() {
			if x.To.IsZero() || x.To.After(r.Last().From) {
				t.Errorf("%s runs since %v, %s ran until %v", r.name, r.Last().From, other.name, x.To)
			}
		}
	}
}

// neverRan fails the test if r's functions ever ran.
func (r *replica) neverRan(t testing.TB) {
	t.Helper()
	if len(r.Spans()) != 0 {
		t.Errorf("%s ran %v", r.name, r.Spans())
	}
}

// seenApart is by how much one watch may show a change after another.
const seenApart = 4 * time.Second

// notBefore fails the test if r's newest span began before that.
func (r *replica) notBefore(t testing.TB, at time.Time, what string) {
	t.Helper()
	if early := at.Sub(r.Last().From); early > 0 {
		t.Errorf("%s started %v before %s", r.name, early, what)
	}
}

func TestHandoverStepByStep(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		s.flipUntilDrain(t, a)
		if b.Live() {
			t.Error("b runs while a's function does")
		}
		if !a.IsLeader() || b.IsLeader() {
			t.Errorf("while a drains: a leads %v, b leads %v", a.IsLeader(), b.IsLeader())
		}
		a.relent()
		eventually(t, "b leads", b.Live)
		b.after(t, a)
		if id, key := b.Leader(); id != "b" || key != "canary" {
			t.Errorf("the record names %q with the key %q", id, key)
		}
		c.expect(t, "a 0, leads", "a 0, leads, asked by b", "a 0, leads, accepts b", "b 1, nominated", "b 1, leads")
		lives.Apart(t, a, b)
	})
}

// A leader whose watcher is behind refuses after a moment, and judges anew when it
// knows more, without having to be asked again.
func TestLeaderWhoseWatcherLags(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		a.wire.mute(webhooks)
		s.setDefault(t, "canary")
		c.await(t, "a 0, leads, refuses b")
		if !a.Live() {
			t.Error("a gave way before it knew why")
		}
		a.wire.unmute(webhooks)
		eventually(t, "b leads", b.Live)
		b.after(t, a)
		c.await(t, "b 1, leads")
		lives.Apart(t, a, b)
	})
}

func TestChallengerWhoseWatcherLags(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		b.wire.mute(webhooks)
		s.setDefault(t, "canary")
		eventually(t, "a knows", func() bool { return a.Status().Default == "canary" })
		c.renewals(t, 3)
		c.expect(t, "a 0, leads")
		b.wire.unmute(webhooks)
		eventually(t, "b leads", b.Live)
		b.after(t, a)
	})
}

// A leader that may not read the default revision says so by its marker: it is not
// asked, but preempted, and its lease is waited for.
func TestLeaderThatMayNotReadTheDefault(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.blind["a"] = true
		c := s.chronicle(t)
		s.setDefault(t, "canary")
		a := s.enterRanked(t, "a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		b := s.enterRanked(t, "b", "canary", brisk)
		eventually(t, "b leads", b.Live)
		b.after(t, a)
		b.notBefore(t, a.wire.lastOwn().Add(briskLease), "the lease that a last wrote had run out")
		c.expect(t, "a 0, leads alone", "b 1, marker of a 0", "b 1, leads")
		lives.Apart(t, a, b)
	})
}

func TestChallengerThatMayNotReadTheDefault(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		s.blind["b"] = true
		a, b, c := s.pair(t, brisk)
		s.setDefault(t, "canary")
		eventually(t, "a knows", func() bool { return a.Status().Default == "canary" })
		c.renewals(t, 3)
		c.expect(t, "a 0, leads")
		if b.Live() || b.Status().DefaultKnown {
			t.Error("b acts on what it cannot know")
		}
	})
}

// The default moves back while the leader has not heard of its move: nothing happens.
func TestDefaultMovesBackBeforeTheLeaderKnew(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		c := s.chronicle(t)
		s.setDefault(t, "stable")
		var late lateWatcher
		a := s.replica("a", "stable", brisk, func(c *leaderelection.Config) { c.DefaultWatcher = &late })
		late.DefaultWatcher = s.watched(t, a)
		eventually(t, "a knows the default revision", late.HasSynced)
		a.start(t)
		eventually(t, "a leads", a.Live)
		b := s.enterRanked(t, "b", "canary", brisk)
		eventually(t, "b follows", b.follows("a"))
		late.hold()
		s.setDefault(t, "canary")
		c.await(t, "a 0, leads, asked by b")
		s.setDefault(t, "stable")
		eventually(t, "b knows", func() bool { return b.Status().Default == "stable" })
		eventually(t, "a's watcher has heard of both", func() bool { return late.heard() == 2 })
		late.letGo()
		c.renewals(t, 3)
		c.never(t, "accepts")
		if len(a.Spans()) != 1 || !a.Live() || len(b.Spans()) != 0 {
			t.Errorf("a ran %v, b ran %v", a.Spans(), b.Spans())
		}
	})
}

// lateWatcher keeps what it hears to itself while it is held, and then tells the last.
type lateWatcher struct {
	revisions.DefaultWatcher
	mu      sync.Mutex
	held    bool
	kept    []string
	handler revisions.DefaultHandler
}

func (l *lateWatcher) AddHandler(handler revisions.DefaultHandler) {
	l.handler = handler
	l.DefaultWatcher.AddHandler(func(revision string) {
		l.mu.Lock()
		held := l.held
		if held {
			l.kept = append(l.kept, revision)
		}
		l.mu.Unlock()
		if !held {
			handler(revision)
		}
	})
}

func (l *lateWatcher) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

func (l *lateWatcher) heard() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept)
}

func (l *lateWatcher) letGo() {
	l.mu.Lock()
	l.held = false
	last := l.kept[len(l.kept)-1]
	l.mu.Unlock()
	l.handler(last)
}

// The default moves back while the acceptance is under way, or while the leader
// drains: what was accepted is completed, and the former leader asks in its turn.
func TestDefaultMovesBackOnceAccepted(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]func(t *testing.T, s *stage, a *replica, back func()){
		"before the drain": func(t *testing.T, s *stage, a *replica, back func()) {
			accepting := s.flipUntil(t, a.wire.hold(accepts))
			back()
			accepting.letGo()
		},
		"during the drain": func(t *testing.T, s *stage, a *replica, back func()) {
			s.flipUntilDrain(t, a)
			back()
			a.relent()
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *stage) {
				a, b, c := s.pair(t)
				moment(t, s, a, func() {
					s.setDefault(t, "stable")
					eventually(t, "both know", func() bool {
						return a.Status().Default == "stable" && b.Status().Default == "stable"
					})
				})
				eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 && a.Live() })
				c.expect(t, "a 0, leads", "a 0, leads, asked by b", "a 0, leads, accepts b", "b 1, nominated", "b 1, leads",
					"b 1, leads, asked by a", "b 1, leads, accepts a", "a 2, nominated", "a 2, leads")
				lives.Apart(t, a, b)
			})
		})
	}
}

// Of two that rank the same, one asks and the other lets it.
func TestTwoChallengersOfEqualRank(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		twin := s.enterRanked(t, "c", "canary")
		eventually(t, "c follows", twin.follows("a"))
		s.flipUntilDrain(t, a)
		a.relent()
		next := leader(t, b, twin)
		c.expect(t, "a 0, leads", "a 0, leads, asked by "+next.name, "a 0, leads, accepts "+next.name,
			next.name+" 1, nominated", next.name+" 1, leads")
		lives.Apart(t, a, b, twin)
	})
}

// One of strictly higher rank replaces a request, even an accepted one; one of lower
// rank does not.
func TestTwoChallengersOfDifferentRank(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		remote := func(c *leaderelection.Config) { c.Remote = true }
		c := s.chronicle(t)
		s.setDefault(t, "stable")
		a := s.enterRanked(t, "a", "stable")
		eventually(t, "a leads", a.Live)
		low := s.enterRanked(t, "low", "canary", remote)
		high, lowToo := s.ranked(t, "high", "canary"), s.ranked(t, "low-too", "canary", remote)
		s.flipUntilDrain(t, a)
		lowToo.start(t)
		eventually(t, "low-too follows", lowToo.follows("a"))
		high.start(t)
		c.await(t, "a 0, leads, accepts high") // it answers while it drains
		a.relent()
		eventually(t, "high leads", high.Live)
		c.expect(t, "a 0, leads", "a 0, leads, asked by low", "a 0, leads, accepts low", "a 0, leads, asked by high",
			"a 0, leads, accepts high", "high 1, nominated", "high 1, leads")
		lives.Apart(t, a, low, high, lowToo)
	})
}
