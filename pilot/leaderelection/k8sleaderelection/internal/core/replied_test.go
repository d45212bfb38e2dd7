package core

import (
	"testing"
	"time"
)

func TestReplied_Snapshot(t *testing.T) {
	c := testConfig()
	known := seenAt(5, lock("equal"))
	known.Learned = 7
	learned := func(s State) State { s.Learned++; return s } // by a watch event during the call
	mine := lock("mine", newer)
	for name, x := range map[string]struct {
		s    State
		snap Snapshot
		want bool
	}{
		"the same, sent before it":           {learned(calling(known, Read)), lock("equal"), true},
		"own write":                          {calling(known, Acquire), mine, true},
		"own write, written by others since": {learned(calling(seenAt(5, lock("equal", func(s *Snapshot) { s.Version = 31 })), Acquire)), mine, false},
	} {
		s := c.replied(x.s, reply(1, OK, x.snap))
		if got := s.Learned != x.s.Learned; got != x.want {
			t.Errorf("%s: applied %v", name, got)
		}
		if x.want && s.Snap.Version != x.snap.Version || s.Requesting.AnsweredAt != seconds(1) || s.Flight != (Call{}) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A write that did not change the version counts as unknown. A read or a conflict may show the known version.
func TestReplied_UnchangedWrite(t *testing.T) {
	c := testConfig()
	s := c.replied(calling(seenAt(0, lock("absent")), Acquire), reply(1, OK, lock("mine")))
	if s.Term != (Term{}) || s.Known != Stale || !s.Own.AcquireUnknown {
		t.Errorf("a write: %+v", s)
	}
	s = c.replied(calling(State{}, Acquire), reply(1, Conflict, Snapshot{}))
	if s.Own.AcquireUnknown || s.Effort.Writes.Conflicts != 1 || s.Effort.Writes.Fails != 0 {
		t.Errorf("a conflict: %+v", s)
	}
	if s = c.replied(calling(seenAt(0, lock("equal")), Read), reply(1, OK, lock("equal"))); s.Known != Current || s.Effort.Reads.Fails != 0 {
		t.Errorf("a read: %+v", s)
	}
}

// Only a read that was sent after the watch began closes its gap.
func TestWatchGap(t *testing.T) {
	c := testConfig()
	for before, want := range map[Op]Knowledge{Read: StaleGap, NoOp: Current} {
		s := c.absorb(calling(seenAt(0, lock("equal")), before), Input{Kind: Watching, Now: testNow, Gap: true})
		if before == NoOp {
			s = calling(s, Read)
		}
		if s = c.replied(s, reply(1, OK, lock("equal", newer))); s.Known != want {
			t.Errorf("call %q before the watch: %v", before, s.Known)
		}
	}
}

// A reply that arrives after the term was lost gives no validity. A claim that was overtaken has to settle.
func TestAcknowledged(t *testing.T) {
	in := reply(1, OK, lock("mine", newer))
	for name, x := range map[string]struct {
		change          func(*State)
		op              Op
		valid           bool
		renewed, settle Instant
	}{
		"after the validity":         {func(s *State) { s.Drain.Lost = ValidityLost }, Renew, false, testNow.Mono, 0},
		"a claim that has to settle": {func(s *State) { s.Earlier.Until = seconds(9) }, Acquire, true, 0, seconds(9)},
	} {
		s := ours(seenAt(0, in.Snap), Settling)
		s.Own.Renewed, s.Validity, s.Marked = 0, Validity{}, false
		x.change(&s)
		s = testConfig().acknowledged(s, Call{Op: x.op, Sent: testNow, Record: s.Snap.Record, Marker: true}, in)
		valid := map[bool]Validity{true: testNow.Plus(10 * time.Second)}[x.valid]
		if s.Validity != valid || s.Marked != (x.valid && x.settle == 0) || s.Own.Renewed != x.renewed || s.Earlier.SettleAt != x.settle {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
