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
		"newer":                              {calling(known, Read), lock("equal", newer), true},
		"older, sent after the last change":  {calling(known, Read), lock("equal", older), true},
		"older, sent before it":              {learned(calling(known, Read)), lock("equal", older), false},
		"the same, sent before it":           {learned(calling(known, Read)), lock("equal"), true},
		"the first":                          {calling(State{}, Read), lock("equal"), true},
		"the first, absent lock":             {calling(State{}, Read), Snapshot{}, true},
		"own write":                          {calling(known, Acquire), mine, true},
		"own write over an older state":      {calling(known, Acquire), lock("mine", older), true},
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
func TestReplied_Gap(t *testing.T) {
	c := testConfig()
	for before, want := range map[bool]Knowledge{true: StaleGap, false: Current} {
		s := calling(seenAt(0, lock("equal")), Read)
		s.Known, s.Flight.BeforeGap = StaleGap, before
		if s = c.replied(s, reply(1, OK, lock("equal", newer))); s.Known != want {
			t.Errorf("sent before the watch %v: %v", before, s.Known)
		}
	}
}

// A leader may act from the time at which a write of its term with its marker was sent.
func TestAcknowledged(t *testing.T) {
	c := testConfig()
	cover := testNow.Plus(10 * time.Second)
	in := reply(1, OK, lock("mine", newer))
	holding := func(change func(*State)) State {
		s := ours(seenAt(0, lock("mine")), Settling)
		s.Own.Renewed, s.Validity, s.Marked = testNow.Mono-1, Validity{}, false
		change(&s)
		return s
	}
	nothing := func(*State) {}
	for name, x := range map[string]struct {
		s               State
		op              Op
		marker          bool
		covers, marks   bool
		renewed, settle Instant
	}{
		"a renewal":                  {holding(nothing), Renew, true, true, true, testNow.Mono, 0},
		"without a marker":           {holding(nothing), Renew, false, true, false, testNow.Mono, 0},
		"of a leader":                {holding(func(s *State) { s.Marked = true }), Renew, false, true, true, testNow.Mono, 0},
		"after the term was lost":    {holding(func(s *State) { s.Drain.Lost = ValidityLost }), Renew, true, false, false, testNow.Mono, 0},
		"after the record was lost":  {holding(func(s *State) { s.Drain.Lost = RecordLost }), Renew, true, false, false, testNow.Mono, 0},
		"with a former marker":       {holding(func(s *State) { s.Earlier.Until = seconds(9) }), Renew, true, true, true, testNow.Mono, 0},
		"a release":                  {holding(nothing), Release, true, false, false, testNow.Mono - 1, 0},
		"a handover":                 {holding(nothing), HandOver, true, false, false, testNow.Mono - 1, 0},
		"a request":                  {holding(nothing), SendRequest, true, false, false, testNow.Mono - 1, 0},
		"a claim":                    {holding(nothing), Acquire, true, true, true, testNow.Mono, 0},
		"a claim that has to settle": {holding(func(s *State) { s.Earlier.Until = seconds(9) }), Acquire, true, true, false, 0, seconds(9)},
	} {
		call := Call{Op: x.op, Sent: testNow, Record: x.s.Snap.Record, Marker: x.marker}
		s := x.s
		s.Snap = in.Snap
		got := c.acknowledged(s, call, in)
		if (got.Validity == cover) != x.covers || !x.covers && got.Validity != (Validity{}) || got.Marked != x.marks ||
			got.Own.Renewed != x.renewed || got.Earlier.SettleAt != x.settle {
			t.Errorf("%s: validity %+v, marked %v, renewed %d, settles at %d", name, got.Validity, got.Marked, got.Own.Renewed, got.Earlier.SettleAt)
		}
		want := x.s.Term
		if x.op == Acquire {
			want = Term{UID: UID{First: "u"}, Transitions: 3, Token: 30}
		}
		if got.Term != want || got.Drain.Lost != x.s.Drain.Lost {
			t.Errorf("%s: term %+v, lost %v", name, got.Term, got.Drain.Lost)
		}
	}
}
