package core

import "testing"

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
