package elections

import (
	"net/http"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/lives"
)

// The answer to the handover is lost, but the handover is not: the leader reads what
// stands there, and has nothing more to do.
func TestHandoverWithoutAnAnswer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		s.flipUntil(t, a.wire.swallow(passing))
		eventually(t, "b leads", b.Live)
		eventually(t, "a knows", a.follows("b"))
		c.renewals(t, 1)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		lives.Apart(t, a, b)
	})
}

// The handover is stuck on its way until the leader has given it up and written it
// again; when it arrives, it is refused, whoever holds the lock by then.
func TestHandoverThatArrivesTwice(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		late := s.flipUntil(t, a.wire.delay(passing))
		eventually(t, "b leads by the second", b.Live)
		late.letGo()
		within(t, "an answer to the first", late.done)
		if late.code != http.StatusConflict {
			t.Errorf("the first handover was answered %d", late.code)
		}
		c.renewals(t, 1)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		if len(a.Spans()) != 1 || len(b.Spans()) != 1 {
			t.Errorf("a ran %v, b ran %v", a.Spans(), b.Spans())
		}
		lives.Apart(t, a, b)
	})
}

// The same for the release of a leader that stops: it arrives when a successor leads.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		lost := a.wire.swallow(freeing)
		if err := a.Quit(); err != nil {
			t.Fatal(err)
		}
		lost.await(t)
		eventually(t, "b leads", b.Live)
		c.await(t, "b 1, leads")
		c.expect(t, "a 0, leads", "nobody 0", "b 1, leads")
		lives.Apart(t, a, b)
	})
}

func TestReleaseThatArrivesLate(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		late := a.wire.delay(freeing)
		if err := a.Quit(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b leads by a second release", b.Live)
		late.letGo()
		within(t, "an answer to the first", late.done)
		if late.code != http.StatusConflict {
			t.Errorf("the first release was answered %d", late.code)
		}
		c.renewals(t, 1)
		c.expect(t, "a 0, leads", "nobody 0", "b 1, leads")
		lives.Apart(t, a, b)
	})
}

// The nominee's own first write is stored and its answer lost: it is not the term's
// first write that it may act on, but a further one that was acknowledged.
func TestNomineeWithoutAnAnswer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		lost, again := b.wire.swallow(taking), b.wire.hold(taking)
		s.setDefault(t, "canary")
		lost.await(t)
		again.await(t)
		if b.Live() {
			t.Error("b acts without an acknowledgement")
		}
		again.letGo()
		eventually(t, "b leads", b.Live)
		c.await(t, "b 2, leads")
		c.expect(t, append(passes("a", "b", 0), "b 1, leads", "b 2, leads")...)
		lives.Apart(t, a, b)
	})
}

// The acceptance is stored and its answer lost: the leader drains once it has read it.
func TestAcceptanceWithoutAnAnswer(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b, c := s.pair(t)
		s.flipUntil(t, a.wire.swallow(accepts))
		eventually(t, "b leads", b.Live)
		c.expect(t, append(passes("a", "b", 0), "b 1, leads")...)
		lives.Apart(t, a, b)
	})
}
