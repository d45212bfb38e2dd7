package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

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

// If run functions exceed their limit while the elector stops, that is reported and the elector ends without a release.
func TestDraining_OverdueStop(t *testing.T) {
	s := ours(seenAt(0, lock("mine")), Draining)
	s.Running, s.Stopping, s.Drain.Until = true, true, testNow.Mono
	if s = testConfig().advance(s, testNow); s.Phase != Done || !s.Drain.Overdue {
		t.Errorf("%s because %s, overdue %v", s.Phase, s.Why, s.Drain.Overdue)
	}
}

// A term whose record showed another holder stays lost, also if an older state is restored.
func TestRecordLost_Final(t *testing.T) {
	c := testConfig()
	for _, phase := range []Phase{Draining, Releasing} {
		s := ours(seenAt(0, lock("mine")), phase)
		s.Running, s.Flight.Op, s.Snap = phase == Draining, Renew, lock("equal", newer)
		s = c.advance(s, testNow)
		if s.Snap = lock("mine", newer); s.Phase != phase || c.ownsTerm(&s) || c.releasable(&s) {
			t.Errorf("%s: %s, own again after a restore", phase, s.Phase)
		}
	}
}

// A follower that is stopped releases a lock of its own, unless an earlier holder may still act.
func TestStop_WhileFollowing(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		lock   string
		change func(*Config, *State)
		want   Phase
	}{
		"another holder":           {"equal", func(*Config, *State) {}, Done},
		"own record":               {"mine", func(*Config, *State) {}, Releasing},
		"own record, no release":   {"mine", func(c *Config, _ *State) { c.Release = false }, Done},
		"unknown acquire":          {"equal", func(_ *Config, s *State) { s.Own.AcquireUnknown = true }, Releasing},
		"earlier holder has ended": {"mine", func(_ *Config, s *State) { s.Earlier.Until = testNow.Mono }, Releasing},
	} {
		config, s := c, seenAt(0, lock(x.lock))
		s.Stopping = true
		if x.lock == "mine" {
			s.Own = wroteLast(s.Own, s.Snap.Record)
		}
		x.change(&config, &s)
		s = config.advanceFollowing(s, testNow)
		if s.Phase != x.want || s.Phase == Releasing && s.Drain.Until != seconds(10) || s.Phase != Following && s.Why != Stopped {
			t.Errorf("%s: %s because %s, until %v", name, s.Phase, s.Why, testNow.Mono.Until(s.Drain.Until))
		}
	}
}

// A term that has ended leaves only its back-off behind.
func TestFollow_State(t *testing.T) {
	c := testConfig() // RetryPeriod 2 s
	for name, x := range map[string]struct {
		change func(*State)
		want   BackOff
	}{
		"a loss after a lease": {func(s *State) { s.BeganAt = seconds(-15.001) }, BackOff{}},
		"a step-down":          {func(s *State) { s.Drain.StepDown = true }, BackOff{Until: seconds(8), Steps: 3}},
		"one of many":          {func(s *State) { s.Drain.StepDown, s.BackOff.Steps = true, 5 }, BackOff{Until: seconds(64), Steps: 5}},
	} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Drain.Lost, s.Drain.Overdue, s.Requesting.Wanted, s.Drain.Sent, s.BackOff.Steps = RecordLost, true, true, true, 2
		x.change(&s)
		want := seenAt(0, lock("mine"))
		want.Phase, want.Why, want.BackOff, want.Own, want.BeganAt = Following, Superseded, x.want, s.Own, s.BeganAt
		s = c.follow(s, testNow, Superseded)
		if s != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, s, want)
		}
	}
	// If the elector is stopping, it ends after the call in flight.
	for op, want := range map[Op]Phase{NoOp: Done, Renew: Following} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Stopping, s.Flight.Op = true, op
		if s = c.follow(s, testNow, Superseded); s.Phase != want || s.Why != Superseded {
			t.Errorf("stopping, with a call %q: %s because %s", op, s.Phase, s.Why)
		}
	}
}

func TestLossReason(t *testing.T) {
	for name, x := range map[string]struct {
		lock Snapshot
		want Reason
	}{
		"deleted":                 {lock("mine", deleted), LockDeleted},
		"recreated":               {lock("mine", recreation), LockDeleted},
		"record removed":          {lock("mine", func(s *Snapshot) { s.Content = record.Missing }), RecordEmptied},
		"first write of the term": {lock("mine", func(s *Snapshot) { s.Version = 15 }), IdentityConflict},
	} {
		s := State{Sight: Sight{Snap: x.lock}, Leadership: Leadership{Term: Term{LockUID: "u", Transitions: 3, Token: 15}}}
		if got := testConfig().lossReason(&s); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// A renewal writes lease and key from the present configuration.
func TestRenewal_Record(t *testing.T) {
	c := testConfig()
	s := ours(seenAt(0, lock("mine, asked, held")), Leading)
	s.Snap.Record.Key, s.Snap.Record.Lease = "canary", time.Second
	record, annotations := c.renewal(&s, testNow)
	want := Record{Holder: "a", Key: "stable", Lease: 15 * time.Second, Acquired: 5e6, Renewed: nowStamp, Transitions: 3}
	if record != want {
		t.Errorf("%+v, want %+v", record, want)
	}
	if n := s.Snap.Annotations; annotations.Hold != n.Hold || annotations.Request != n.Request || !annotations.Marker.Matches(record) {
		t.Errorf("annotations: %+v", annotations)
	}
	// A leader keeps its marker.
	s.Earlier.SettleAt = Never
	if _, annotations := c.renewal(&s, testNow); !annotations.Marker.Matches(record) {
		t.Errorf("a leader removed its marker: %+v", annotations)
	}
	if s.Marked = false; true {
		if _, annotations := c.renewal(&s, testNow); annotations.Marker != (Marker{}) {
			t.Errorf("a marker while settling: %+v", annotations)
		}
	}
}

// The lease of a release is as short as possible, because peers wait for it.
func TestRelease_Record(t *testing.T) {
	s := ours(seenAt(0, lock("mine")), Releasing)
	want := Record{Lease: time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 3}
	a := testConfig().decide(&s, testNow)
	if a.Op != Release || a.Record != want || a.Annotations != (Annotations{}) || a.Base != s.Snap {
		t.Errorf("%+v", a)
	}
	for next, want := range map[float64]Op{-1: Release, 0: Release, 1: NoOp} {
		s.Effort.Writes.Next = seconds(next)
		if a := testConfig().decide(&s, testNow); a.Op != want || a.Op == NoOp && a.Wake != seconds(next) {
			t.Errorf("writes paused until %v: %s", next, call(a))
		}
	}
}

// A witness releases a lock only if every part of it matches the registered term.
func TestEndedTerm_Left(t *testing.T) {
	acting := lock("equal")
	term := EndedTerm{Holder: "b", UID: acting.UID, Transitions: 3, Acquired: acting.Record.Acquired}
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   Reason
	}{
		"deleted":            {deleted, LockDeleted},
		"same number, later": {func(s *Snapshot) { s.Record.Acquired++ }, Superseded},
	} {
		s := acting
		c.change(&s)
		if got := term.Left(s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A renewal that is seen stored counts from when it was sent. Nothing else does.
func TestSeenStored(t *testing.T) {
	c := testConfig()
	stored := lock("mine", newer, renewed)
	sent := func(at ClockReading) State {
		s := ours(seenAt(2, lock("mine")), Leading)
		s.Marked = false
		s.Own = s.Own.sent(stored.Record, at)
		return s
	}
	lost := sent(moment(2e9))
	lost.Phase, lost.Drain.Lost, lost.Validity = Draining, ValidityLost, Validity{}
	again := sent(moment(2e9))
	again.Own = again.Own.sent(stored.Record, moment(3e9)) // the last stamp is used again
	for name, x := range map[string]struct {
		s    State
		snap Snapshot
		want Validity
	}{
		"renewal":                {sent(moment(2e9)), stored, moment(2e9).Plus(c.Validity)},
		"sent again":             {again, stored, moment(2e9).Plus(c.Validity)},
		"not stored":             {sent(moment(2e9)), lock("mine", newer), testNow.Plus(c.Validity)},
		"acquisition":            {sent(ClockReading{}), stored, testNow.Plus(c.Validity)},
		"other term":             {sent(moment(2e9)), lock("mine", newer, renewed, to("a", 4)), testNow.Plus(c.Validity)},
		"after the validity":     {lost, stored, Validity{}},
		"older, store restored":  {sent(moment(2e9)), lock("mine", older, renewed), testNow.Plus(c.Validity)},
		"other holder, by stamp": {sent(moment(2e9)), lock("mine", newer, renewed, to("b", 3)), testNow.Plus(c.Validity)},
	} {
		s := c.observe(&x.s, later(4, x.snap))
		if s.Validity != x.want {
			t.Errorf("%s: validity ends %v after now", name, testNow.Mono.Until(s.Validity.Mono))
		}
		if credited := x.want == moment(2e9).Plus(c.Validity); s.Marked != credited || credited && s.Own.Renewed != seconds(2) {
			t.Errorf("%s: marked %v, renewed %v", name, s.Marked, testNow.Mono.Until(s.Own.Renewed))
		}
	}
}

// Creating a lock has no guard. A candidate that created one while another holder may act settles, also if it sees its record again.
func TestSeenStored_CreatedTwice(t *testing.T) {
	c := testConfig()
	s := seenAt(5, lock("absent"))
	s, a := c.Step(s, Input{Kind: Tick, Now: testNow})
	if a.Op != Acquire {
		t.Fatalf("%s because %s", a.Op, a.Why)
	}
	s.Earlier.Until = seconds(9) // seen during the call
	mine := Snapshot{Exists: true, UID: "v", Version: 30, Content: record.Readable, Record: a.Record, Annotations: a.Annotations}
	s, _ = c.Step(s, Input{Kind: Watching, Gap: true, Now: moment(5e8)})
	if s, a = c.Step(s, reply(1, OK, mine)); s.Phase != Settling || a.Op != Read {
		t.Fatalf("%s, %s after the reply", s.Phase, a.Op)
	}
	if s, _ = c.Step(s, reply(2, OK, mine)); s.Phase != Settling {
		t.Errorf("%s after a read", s.Phase)
	}
}

// After a watch began, a leader reads. If its renewal is due, it renews instead, because the answers of a read and a write could take
// longer than its validity. The answer shows as much as a read, unless the call was sent before the watch began.
func TestRenewsAfterGap(t *testing.T) {
	c := testConfig()
	began := Input{Kind: Watching, Gap: true}
	for name, x := range map[string]struct {
		at   float64
		op   Op // in flight when the watch begins
		want Op
	}{"not due": {0.1, NoOp, Read}, "due": {2, NoOp, Renew}, "due during a renewal": {2, Renew, Renew}} {
		s := ours(seenAt(2, lock("mine")), Leading)
		if x.op != NoOp {
			s = calling(s, x.op)
		}
		began.Now = moment(time.Duration(x.at * float64(time.Second)))
		s, a := c.Step(s, began)
		if x.op != NoOp {
			s, a = c.Step(s, reply(x.at, OK, lock("mine", newer, renewed)))
			if s.Known != StaleGap || a.Op != Read {
				t.Errorf("%s: after a renewal that was sent before: %v, %s", name, s.Known, a.Op)
			}
			continue
		}
		if a.Op != x.want {
			t.Errorf("%s: %s because %s", name, a.Op, a.Why)
		}
		if s, _ = c.Step(s, reply(x.at+1, OK, lock("mine", newer, renewed))); s.Known != Current {
			t.Errorf("%s: knowledge %v after the answer", name, s.Known)
		}
	}
}

// Whenever a watch began, and although no read is answered, half of the validity is left for the answer of a renewal.
func TestRenewsAfterGap_SlowServer(t *testing.T) {
	c := testConfig()
	c.Validity, c.Retry = 15*time.Second, 7500*time.Millisecond
	for after := time.Duration(0); after < c.Retry; after += 100 * time.Millisecond {
		s := ours(seenAt(2, lock("mine")), Leading)
		s.Validity = testNow.Plus(c.Validity)
		in := Input{Kind: Watching, Gap: true, Now: moment(after)}
		var a Action
		for range 10 {
			if s, a = c.Step(s, in); a.Op == Renew {
				break
			}
			in = Input{Now: moment(testNow.Mono.Until(a.Wake))}
			if a.Op == Read {
				in = Input{Kind: Replied, Result: Unknown, Now: moment(testNow.Mono.Until(a.Until))}
			}
		}
		if left := s.Validity.Left(in.Now); a.Op != Renew || left < c.Validity/2 {
			t.Errorf("watch began after %v: %s with %v left", after, a.Op, left)
		}
	}
}
