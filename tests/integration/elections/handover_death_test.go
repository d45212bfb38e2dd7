package elections

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// The deaths and pauses here are of the connection: nothing of the replica is heard any
// more, and it hears nothing. Real processes are killed and stopped in process_test.go.

// Its leader does not know of the flip yet: it goes on, and the request runs out.
func TestChallengerDiesAfterAsking(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		a.wire.mute(webhooks)
		s.setDefault(t, "canary")
		c.await(t, "a 0, leads, refuses b")
		b.die()
		dead, lasts := time.Now(), c.requestLasts(t)
		eventually(t, "the request has run out", func() bool { return time.Since(dead) > lasts+time.Second })
		a.wire.unmute(webhooks)
		eventually(t, "a knows", func() bool { return a.Status().Default == "canary" })
		c.renewals(t, 3)
		c.never(t, "accepts")
		if len(a.Spans()) != 1 || !a.Live() {
			t.Errorf("a ran %v", a.Spans())
		}
	})
}

// requestLasts is for how long the longest of the requests so far stands. One that has met a
// conflict asks for longer.
func (c *chronicle) requestLasts(t testing.TB) time.Duration {
	t.Helper()
	longest := 0
	for _, state := range c.all() {
		var request struct{ Seconds int }
		raw := state.Notes[k8sresourcelock.HandoverRequestAnnotation]
		if raw == "" {
			continue
		}
		if err := json.Unmarshal([]byte(raw), &request); err != nil || request.Seconds < 1 {
			t.Fatalf("the request %s: %v", raw, err)
		}
		longest = max(longest, request.Seconds)
	}
	if longest == 0 {
		t.Fatal("nobody has asked")
	}
	return time.Duration(longest) * time.Second
}

// Its leader accepts the request of a process that is gone: the lock goes to a nominee
// that never comes, and to others a RetryPeriod later.
func TestChallengerDiesUnheard(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, third, c := s.trio(t)
		accepting := s.flipUntil(t, a.wire.hold(accepts))
		b.die()
		accepting.letGo()
		c.await(t, "b 1, nominated")
		next := leader(t, a, third)
		c.expect(t, append(passes("a", "b", 0), next.name+" 2, leads")...)
		b.neverRan(t)
		lives.Apart(t, a, third)
	})
}

func TestChallengerDiesAfterAcceptance(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, third, c := s.trio(t)
		s.flipUntilDrain(t, a)
		b.die()
		a.relent()
		if next := c.next(t, passes("a", "b", 0)...); next != "a 2, leads" && next != "c 2, leads" {
			t.Errorf("the nomination is followed by %q", next)
		}
		b.neverRan(t)
		lives.Apart(t, a, third)
	})
}

// The nominee's first write is on its way when the nominee dies, and never arrives.
func TestNomineeDies(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, third, c := s.trio(t)
		s.flipUntil(t, b.wire.hold(taking))
		b.die()
		next := leader(t, a, third)
		c.expect(t, append(passes("a", "b", 0), next.name+" 2, leads")...)
		b.neverRan(t)
		lives.Apart(t, a, third)
	})
}

// The nominee's first write arrives when somebody else has the lock already: it is
// refused, and the nominee acts only when it has been handed the lock again.
func TestNomineeIsPausedWhileAnotherTakesOver(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, third, c := s.trio(t)
		late := b.wire.delay(taking)
		s.setDefault(t, "canary")
		next, _, _ := strings.Cut(c.next(t, passes("a", "b", 0)...), " ")
		late.letGo()
		eventually(t, "b leads in its turn", b.Live)
		c.expect(t, append(append(passes("a", "b", 0), passes(next, "b", 2)...), "b 3, leads")...)
		eventually(t, "the late write is answered", late.isDone)
		if late.code != http.StatusConflict {
			t.Errorf("the late write was answered %d", late.code)
		}
		if len(b.Spans()) != 1 || len(a.Spans())+len(third.Spans()) != 2 {
			t.Errorf("a ran %v, b ran %v, c ran %v", a.Spans(), b.Spans(), third.Spans())
		}
		lives.Apart(t, a, b, third)
	})
}

// The nominee's watch shows the nomination only after somebody else has taken over.
func TestNomineeWhoseWatchIsLate(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, third, c := s.trio(t)
		s.flipUntilDrain(t, a)
		b.wire.mute("configmaps")
		b.wire.mute("leases")
		looks := b.wire.hold(reading) // it polls, too, while its request stands
		a.relent()
		c.await(t, "b 1, nominated")
		next, _, _ := strings.Cut(c.next(t, passes("a", "b", 0)...), " ")
		looks.letGo()
		b.wire.unmute("configmaps")
		b.wire.unmute("leases")
		// b asks the next leader in its turn.
		eventually(t, "b leads", b.Live)
		c.expect(t, append(append(passes("a", "b", 0), passes(next, "b", 2)...), "b 3, leads")...)
		lives.Apart(t, a, b, third)
	})
}

// passes are the steps by which a lock goes from one to the other, the other's own
// first write excepted.
func passes(from, to string, transitions int) []string {
	return []string{
		step(from, transitions, "leads"), step(from, transitions, "leads, asked by "+to),
		step(from, transitions, "leads, accepts "+to), step(to, transitions+1, "nominated"),
	}
}

func TestLeaderDiesWhileDraining(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t, brisk)
		s.flipUntilDrain(t, a)
		a.die()
		last := a.wire.lastOwn()
		eventually(t, "b leads", b.Live)
		b.notBefore(t, last.Add(briskLease), "the lease of a had run out")
		c.expect(t, "a 0, leads", "a 0, leads, asked by b", "a 0, leads, accepts b", "b 1, leads")
		lives.Apart(t, a, b)
	})
}

// A drain that outstays the stop limit is reported once, and the lock is renewed no more.
// It is passed on if the functions return while it lasts.
func TestLeaderDrainsTooLong(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c, stuck := s.stuckPair(t)
		a.relent()
		eventually(t, "b leads", b.Live)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		if len(stuck) != 0 {
			t.Errorf("reported %d times more", len(stuck))
		}
		lives.Apart(t, a, b)
	})
}

// If they never return the lock lapses: somebody else leads once the lease has run out,
// and what still runs cannot write.
func TestLeaderNeverEndsItsDrain(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c, _ := s.stuckPair(t)
		eventually(t, "b leads", b.Live)
		last := a.wire.lastOwn()
		b.notBefore(t, last.Add(briskLease), "the lease of a had run out")
		c.expect(t, "a 0, leads", "a 0, leads, asked by b", "a 0, leads, accepts b", "b 1, leads")
		if err := a.Gate().Check(); !errors.Is(err, fence.ErrNotLeader) {
			t.Errorf("the gate of a, whose function still runs: %v", err)
		}
		if !a.Live() {
			t.Error("the function of a does not run any more")
		}
		a.relent()
		eventually(t, "a follows", a.follows("b"))
	})
}

// stuckPair is a pair whose leader has been asked for the lock, and has reported that its
// function outstays the stop limit.
func (s *stage) stuckPair(t *testing.T) (a, b *replica, c *chronicle, stuck chan struct{}) {
	stuck = make(chan struct{}, 8)
	a, b, c = s.pair(t, brisk, func(c *leaderelection.Config) {
		c.StopLimit = 600 * time.Millisecond
		c.OnStuckDrain = func() { stuck <- struct{}{} }
	})
	a.insist()
	s.setDefault(t, "canary")
	eventually(t, "it is reported", func() bool { return len(stuck) > 0 })
	<-stuck
	return a, b, c, stuck
}
