package core

import (
	"testing"
	"time"
)

// reply is the end of the call in flight, n seconds after testNow.
func reply(n float64, result Result, snap Snapshot) Input {
	return Input{Kind: Replied, Now: moment(time.Duration(n * float64(time.Second))), Result: result, Snap: snap}
}

// calling is s with a call in flight, sent at testNow over what s has seen.
func calling(s State, op Op) State {
	s.Flight = Call{Op: op, Sent: testNow, Base: s.Snap.Version, Learned: s.Learned, Record: s.Snap.Record, Marker: true}
	return s
}

// Which answers say something of the lock as it is now.
func TestWhichAnswersAreNews(t *testing.T) {
	c := testConfig()
	known := seenAt(5, lock("equal"))
	known.Learned = 7
	learned := func(s State) State { s.Learned++; return s } // by the watch, while the call was under way
	mine := lock("mine", newer)
	for name, x := range map[string]struct {
		s    State
		snap Snapshot
		want bool
	}{
		"a newer state": {calling(known, Read), lock("equal", newer), true},
		"an older one, asked for after what we know":    {calling(known, Read), lock("equal", older), true},
		"an older one, asked for before":                {learned(calling(known, Read)), lock("equal", older), false},
		"the same one, asked for before":                {learned(calling(known, Read)), lock("equal"), true},
		"the first":                                     {calling(State{}, Read), lock("equal"), true},
		"the first, of a lock that is not there":        {calling(State{}, Read), Snapshot{}, true},
		"our own write":                                 {calling(known, Acquire), mine, true},
		"our own write, over an older state":            {calling(known, Acquire), lock("mine", older), true},
		"our own write, and somebody has written since": {learned(calling(seenAt(5, lock("equal", func(s *Snapshot) { s.Version = 31 })), Acquire)), mine, false},
	} {
		s := c.replied(x.s, reply(1, OK, x.snap))
		if got := s.Learned != x.s.Learned; got != x.want {
			t.Errorf("%s: taken in: %v", name, got)
		}
		if x.want && s.Snap.Version != x.snap.Version || s.Asking.AnsweredAt != seconds(1) || s.Flight != (Call{}) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// An answer ends what was wrong with calls of its kind, and only of that.
func TestWhatAnAnswerMends(t *testing.T) {
	c := testConfig()
	bad := Effort{Fails: 3, Conflicts: 2, Next: seconds(9), Last: testNow.Mono}
	for op, x := range map[Op]struct{ reads, writes, asks Effort }{
		Read:  {Effort{}, bad, bad},
		Renew: {bad, Effort{}, bad},
		Ask:   {bad, bad, Effort{}},
	} {
		s := calling(seenAt(0, lock("equal")), op)
		s.Effort.Reads, s.Effort.Writes, s.Effort.Asks = bad, bad, bad
		s = c.replied(s, reply(1, OK, lock("equal", newer)))
		if s.Effort.Reads != x.reads || s.Effort.Writes != x.writes || s.Effort.Asks != x.asks {
			t.Errorf("%s: reads %+v, writes %+v, asks %+v", op, s.Effort.Reads, s.Effort.Writes, s.Effort.Asks)
		}
	}
}

// A write that changed nothing was none, and nobody knows what became of it. A read and a
// conflict may well show the version that is known.
func TestAWriteThatChangedNothing(t *testing.T) {
	c := testConfig()
	s := c.replied(calling(seenAt(0, lock("absent")), Acquire), reply(1, OK, lock("mine")))
	if s.Term != (Term{}) || s.Known != Behind || !s.Own.AcquireUnknown {
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

// What is missed while a watch begins is made good only by a read that was sent since.
func TestWhichReadClosesAGap(t *testing.T) {
	c := testConfig()
	for before, want := range map[bool]Knowledge{true: BehindGap, false: Current} {
		s := calling(seenAt(0, lock("equal")), Read)
		s.Known, s.Flight.BeforeGap = BehindGap, before
		if s = c.replied(s, reply(1, OK, lock("equal", newer))); s.Known != want {
			t.Errorf("sent before it: %v: %v", before, s.Known)
		}
	}
}

// An acknowledgement lets one act from when the write was sent, on a write of this term that
// says so, and on nothing else.
func TestWhatAnAcknowledgementAllows(t *testing.T) {
	c := testConfig()
	cover := testNow.Plus(10 * time.Second)
	in := reply(1, OK, lock("mine", newer))
	holding := func(change func(*State)) State {
		s := ours(seenAt(0, lock("mine")), Settling)
		s.Own.Renewed, s.Cover, s.Marked = testNow.Mono-1, Cover{}, false
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
		"a renewal":                   {holding(nothing), Renew, true, true, true, testNow.Mono, 0},
		"one without a marker":        {holding(nothing), Renew, false, true, false, testNow.Mono, 0},
		"one of somebody who acts":    {holding(func(s *State) { s.Marked = true }), Renew, false, true, true, testNow.Mono, 0},
		"after the term was lost":     {holding(func(s *State) { s.Drain.Lost = CoverLost }), Renew, true, false, false, testNow.Mono, 0},
		"after the record was gone":   {holding(func(s *State) { s.Drain.Lost = RecordLost }), Renew, true, false, false, testNow.Mono, 0},
		"while a marker was found":    {holding(func(s *State) { s.Earlier.Until = seconds(9) }), Renew, true, true, true, testNow.Mono, 0},
		"a release":                   {holding(nothing), Release, true, false, false, testNow.Mono - 1, 0},
		"a handover":                  {holding(nothing), HandOver, true, false, false, testNow.Mono - 1, 0},
		"a request":                   {holding(nothing), Ask, true, false, false, testNow.Mono - 1, 0},
		"a claim":                     {holding(nothing), Acquire, true, true, true, testNow.Mono, 0},
		"a claim, when one must wait": {holding(func(s *State) { s.Earlier.Until = seconds(9) }), Acquire, true, true, false, 0, seconds(9)},
	} {
		call := Call{Op: x.op, Sent: testNow, Record: x.s.Snap.Record, Marker: x.marker}
		s := x.s
		s.Snap = in.Snap
		got := c.acknowledged(s, call, in)
		if (got.Cover == cover) != x.covers || !x.covers && got.Cover != (Cover{}) || got.Marked != x.marks ||
			got.Own.Renewed != x.renewed || got.Earlier.SettleAt != x.settle {
			t.Errorf("%s: covers until %+v, marked %v, renewed %d, settles at %d", name, got.Cover, got.Marked, got.Own.Renewed, got.Earlier.SettleAt)
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

// An event that is outdated brings no comparison with it either, nor does a call that failed.
func TestWhatBringsAComparison(t *testing.T) {
	c := testConfig()
	s := calling(seenAt(0, lock("equal")), Read)
	s.Beats = true
	if got := c.absorb(s, Input{Kind: Seen, Now: testNow, Snap: lock("equal", older)}); !got.Beats {
		t.Error("an outdated event: it beats no more")
	}
	if got := c.absorb(s, reply(1, Unknown, Snapshot{})); !got.Beats {
		t.Error("a read that failed: it beats no more")
	}
}

// Calls of one kind that fail in a row are tried less and less often; those of others are
// as they were.
func TestHowAFailureIsCounted(t *testing.T) {
	c := testConfig()
	long := seconds(-31) // two leases and a second ago: that was another trouble
	for name, x := range map[string]struct {
		op     Op
		result Result
		base   uint64 // that it was guarded by; the conflicts before by 20
		last   Instant
		want   Effort // of writes
	}{
		"the first":                   {Renew, Unknown, 20, long, Effort{Fails: 1, Next: seconds(0.125), Last: testNow.Mono}},
		"another":                     {Renew, Unknown, 20, seconds(-30), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"the first, after a while":    {Renew, Refused, 20, long, Effort{Fails: 1, Next: seconds(0.125), Last: testNow.Mono}},
		"a conflict":                  {Renew, Conflict, 20, long, Effort{Conflicts: 1, Base: 20, Last: testNow.Mono}},
		"a conflict after a while":    {Renew, Conflict, 21, seconds(-5), Effort{Fails: 5, Conflicts: 1, Base: 21, Last: testNow.Mono}},
		"a second conflict":           {Renew, Conflict, 21, seconds(-4), Effort{Fails: 5, Conflicts: 3, Base: 21, Next: seconds(0.25), Last: testNow.Mono}},
		"a conflict within a moment":  {Renew, Conflict, 21, seconds(-1), Effort{Fails: 5, Conflicts: 3, Base: 21, Next: seconds(0.25), Last: testNow.Mono}},
		"a conflict with nobody":      {Renew, Conflict, 20, seconds(-5), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"and again soon":              {Renew, Conflict, 20, seconds(-1), Effort{Fails: 6, Conflicts: 2, Base: 20, Next: seconds(2), Last: testNow.Mono}},
		"a read, as if in a conflict": {Read, Conflict, 20, long, Effort{Fails: 5, Conflicts: 2, Base: 20, Next: seconds(7), Last: long}},
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
	s := seenAt(0, lock("lower, hands over"))
	s = c.failed(s, Call{Op: Ask}, reply(0, Unknown, Snapshot{}))
	if s.Effort.Asks.Fails != 1 || s.Effort.Writes.Fails != 0 {
		t.Errorf("a request: %+v", s)
	}
	s.Asking.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: Ask}, reply(0, Conflict, Snapshot{})); s.Asking.NotBefore != 0 || s.Effort.Asks.Next != 0 {
		t.Errorf("a request that met a renewal is put off: %+v", s)
	}
	s.Asking.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: Ask, Base: 1}, reply(0, Conflict, Snapshot{})); s.Asking.NotBefore != seconds(9) || s.Effort.Asks.Next != seconds(0.125) {
		t.Errorf("a request that meets one after the other: %+v", s)
	}
	s = ours(seenAt(0, lock("mine")), Leading)
	s.Asking.NotBefore = seconds(9)
	if s = c.failed(s, Call{Op: Renew}, reply(0, Conflict, Snapshot{})); s.Asking.NotBefore != seconds(9) {
		t.Errorf("a renewal's conflict: %+v", s)
	}
}

// What a failure leaves in doubt. A refusal says for certain that nothing was written, and
// what a watch shows is as good as before.
func TestWhatAFailureLeavesUnknown(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		op                    Op
		result                Result
		watch                 bool
		behind, unknown, sent bool
		reads                 float64 // from when on one may read
	}{
		"a claim without an answer":     {Acquire, Unknown, true, true, true, true, 0.125},
		"a renewal without an answer":   {Renew, Unknown, true, true, false, true, 0.125},
		"a read without an answer":      {Read, Unknown, true, true, false, true, 0.125},
		"a claim that conflicts":        {Acquire, Conflict, true, true, false, false, 0},
		"a claim refused":               {Acquire, Refused, true, false, false, true, 0},
		"a claim refused, unwatched":    {Acquire, Refused, false, true, false, false, 0.125},
		"a read refused":                {Read, Refused, true, true, false, false, 0.125},
		"a read that seems to conflict": {Read, Conflict, true, true, false, false, 0.125},
	} {
		s := seenAt(0, lock("equal"))
		s.Watch, s.Drain.Sent = x.watch, true
		s = c.failed(s, Call{Op: x.op}, reply(0, x.result, Snapshot{}))
		want := Instant(0)
		if x.reads > 0 {
			want = seconds(x.reads)
		}
		if s.Known.Outdated() != x.behind || s.Own.AcquireUnknown != x.unknown || s.Drain.Sent != x.sent || s.Effort.Reads.Next != want {
			t.Errorf("%s: behind %v, acquire unknown %v, sent %v, reads in %v", name, s.Known.Outdated(), s.Own.AcquireUnknown, s.Drain.Sent, testNow.Mono.Until(s.Effort.Reads.Next))
		}
	}
	s := seenAt(0, lock("equal"))
	s.Own.AcquireUnknown = true
	if s = c.failed(s, Call{Op: Read}, reply(0, Unknown, Snapshot{})); !s.Own.AcquireUnknown {
		t.Error("a read that failed tells what became of a claim")
	}
	if s = c.failed(seenAt(0, lock("equal")), Call{Op: Acquire}, reply(0, Unknown, Snapshot{})); s.Drain.Sent {
		t.Error("a claim without an answer may have released something")
	}
}

// How long the pauses are: up to a RetryPeriod for reads and for who has something to lose,
// up to a lease for writes of others, and of one that settles when its own lease has run out; by up
// to a quarter less, at random.
func TestHowLongThePausesAre(t *testing.T) {
	c := testConfig()
	const ms = time.Millisecond
	for name, x := range map[string]struct {
		phase  Phase
		op     Op
		jitter uint8
		seen   float64 // when its record was last another, before now
		want   []time.Duration
	}{
		"reads":                      {Following, Read, 0, 0, []time.Duration{125 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"a holder's writes":          {Leading, Renew, 0, 0, []time.Duration{125 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"a follower's writes":        {Following, Acquire, 0, 0, []time.Duration{125 * ms, 500 * ms, 2000 * ms, 8000 * ms, 15000 * ms, 15000 * ms}},
		"one's that has ended":       {Done, Release, 0, 0, []time.Duration{125 * ms, 500 * ms, 2000 * ms, 8000 * ms, 15000 * ms}},
		"shortened by an eighth":     {Following, Acquire, 128, 0, []time.Duration{125*ms - 125*ms/8, 500*ms - 500*ms/8}},
		"of one that settles":        {Settling, Renew, 0, 14.999, []time.Duration{125 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms}},
		"of one whose lease is over": {Settling, Renew, 0, 15, []time.Duration{125 * ms, 500 * ms, 2000 * ms, 8000 * ms, 15000 * ms}},
		"of a drain and its reads":   {Draining, Read, 0, 0, []time.Duration{125 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms}},
	} {
		for i, want := range x.want {
			s := State{Phase: x.phase, Since: Since{Record: seconds(-x.seen)}}
			if got := c.pause(s, x.op, uint8(i+1), Input{Now: testNow, Jitter: x.jitter}); got != want {
				t.Errorf("%s: after %d failures %v, want %v", name, i+1, got, want)
			}
		}
	}
	// What the server wishes is heeded, but no longer than a pause may be.
	for phase, x := range map[Phase]struct{ wish, want float64 }{Leading: {60, 2}, Following: {60, 15}, Settling: {1, 1}} {
		s := State{Phase: phase, Known: Current, Watch: true, Since: Since{Record: testNow.Mono}}
		in := reply(0, Refused, Snapshot{})
		in.RetryAfter = time.Duration(x.wish) * time.Second
		if got := c.failed(s, Call{Op: Renew}, in).Effort.Writes.Next; got != seconds(x.want) {
			t.Errorf("%s: a wish of %vs: %v", phase, x.wish, testNow.Mono.Until(got))
		}
		if in.Result = Unknown; c.failed(s, Call{Op: Renew}, in).Effort.Writes.Next != seconds(0.125) {
			t.Errorf("%s: a wish without a refusal is heeded", phase)
		}
	}
}
