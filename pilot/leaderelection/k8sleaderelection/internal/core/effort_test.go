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

// Calls of one kind that fail in a row are repeated less often. Calls of other kinds are not affected.
func TestFailed_Count(t *testing.T) {
	c := testConfig()
	long := seconds(-31) // more than two leases ago: an older problem
	for name, x := range map[string]struct {
		op     Op
		result Result
		base   uint64 // version that guarded the call; the earlier conflicts had 20
		last   Instant
		want   Effort
	}{
		"repeated":             {Renew, Unknown, 20, seconds(-30), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"first refusal":        {Renew, Refused, 20, long, Effort{Fails: 1, Next: seconds(0.125), Last: testNow.Mono}},
		"a second conflict":    {Renew, Conflict, 21, seconds(-4), Effort{Fails: 5, Conflicts: 3, Base: 21, Next: seconds(0.25), Last: testNow.Mono}},
		"read with a conflict": {Read, Conflict, 20, long, Effort{Fails: 5, Conflicts: 2, Base: 20, Next: seconds(7), Last: long}},
	} {
		s := ours(seenAt(0, lock("mine")), Leading)
		s.Effort.Writes = Effort{Fails: 5, Conflicts: 2, Base: 20, Next: seconds(7), Last: x.last}
		s.Effort.Reads.Last = testNow.Mono
		s = c.failed(s, Call{Op: x.op, Base: x.base}, reply(0, x.result, Snapshot{}))
		if s.Effort.Writes != x.want {
			t.Errorf("%s: %+v", name, s.Effort.Writes)
		}
		if read := x.op == Read; (s.Effort.Reads.Fails == 1) != read {
			t.Errorf("%s: reads %+v", name, s.Effort.Reads)
		}
	}
	s := ours(seenAt(0, lock("mine")), Leading)
	s.Effort.Writes = Effort{Conflicts: 1, Base: 20, Last: seconds(-5)} // more than two RetryPeriods ago, without a failure
	if s = c.failed(s, Call{Op: Renew, Base: 20}, reply(0, Conflict, Snapshot{})); s.Effort.Writes.Conflicts != 1 || s.Effort.Writes.Fails != 0 {
		t.Errorf("a conflict long after another one: %+v", s.Effort.Writes)
	}
	s = seenAt(0, lock("lower, hands over"))
	s = c.failed(s, Call{Op: SendRequest}, reply(0, Unknown, Snapshot{}))
	if s.Effort.Requests.Fails != 1 || s.Effort.Writes.Fails != 0 {
		t.Errorf("a request: %+v", s)
	}
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: SendRequest}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != 0 || s.Effort.Requests.Next != 0 {
		t.Errorf("a request that met a renewal is delayed: %+v", s)
	}
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: SendRequest, Base: 1}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != seconds(9) || s.Effort.Requests.Next != seconds(0.125) {
		t.Errorf("a request with repeated conflicts: %+v", s)
	}
	s = ours(seenAt(0, lock("mine")), Leading)
	s.Requesting.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: Renew}, reply(0, Conflict, Snapshot{})); s.Requesting.NotBefore != seconds(9) {
		t.Errorf("conflict of a renewal: %+v", s)
	}
}
