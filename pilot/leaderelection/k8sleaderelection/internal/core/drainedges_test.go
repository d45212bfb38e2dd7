package core

import (
	"testing"
	"time"
)

// How a drain ends.
func TestHowADrainEnds(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*Config, *State)
		want    Phase
		why     Reason
		overdue bool
	}{
		"it goes on":                       {func(_ *Config, s *State) { s.Alive = true }, Draining, Stopped, false},
		"past its limit":                   {func(_ *Config, s *State) { s.Alive, s.Drain.Until = true, testNow.Mono }, Draining, Stopped, true},
		"past its limit, and told to stop": {func(_ *Config, s *State) { s.Alive, s.Drain.Until, s.Stopping = true, testNow.Mono, true }, Done, DrainStuck, true},
		"the same, with a call under way": {func(_ *Config, s *State) {
			s.Alive, s.Drain.Until, s.Stopping, s.Flight.Op = true, testNow.Mono, true, Renew
		}, Draining, Stopped, true},
		"drained past its limit":             {func(_ *Config, s *State) { s.Drain.Until, s.Stopping, s.Drain.Overdue = testNow.Mono, true, true }, Releasing, DrainedAll, true},
		"drained to stop":                    {func(_ *Config, s *State) { s.Stopping = true }, Releasing, DrainedAll, false},
		"drained to stop, without a release": {func(c *Config, s *State) { s.Stopping, c.Release = true, false }, Done, Stopped, false},
		"drained to step down":               {func(_ *Config, s *State) { s.Drain.Kind = DrainToStepDown }, Releasing, DrainedAll, false},
		"drained to hand over":               {func(_ *Config, s *State) { s.Drain.Kind = DrainToHandOver }, Releasing, DrainedAll, false},
		"drained after a loss":               {func(_ *Config, s *State) { s.Drain.Lost, s.Cover = CoverLost, Cover{} }, Following, Stopped, false},
		"taken meanwhile":                    {func(_ *Config, s *State) { s.Drain.Kind, s.Snap = DrainToStepDown, lock("equal", newer) }, Following, Superseded, false},
	} {
		c, s := testConfig(), ours(seenAt(0, lock("mine")), Draining)
		s.Why = Stopped
		x.change(&c, &s)
		s = c.advance(s, testNow)
		if s.Phase != x.want || s.Why != x.why || s.Drain.Overdue != x.overdue {
			t.Errorf("%s: %s because %s, overdue %v", name, s.Phase, s.Why, s.Drain.Overdue)
		}
		if s.Phase == Releasing && s.Drain.Until != seconds(10) {
			t.Errorf("%s: releases for %v", name, testNow.Mono.Until(s.Drain.Until))
		}
	}
}

// How long the functions of a leader that ends in order may take: StopLimit.
func TestHowLongALeadersDrainMayTake(t *testing.T) {
	for name, x := range map[string]struct {
		lock   string
		change func(*State)
		why    Reason
		cool   time.Duration
	}{
		"a stop":              {"mine", func(s *State) { s.Stopping = true }, Stopped, 0},
		"a step-down":         {"mine", func(s *State) { s.Drain.Kind = DrainToStepDown }, SteppedDown, 0},
		"a handover":          {"mine, accepted", func(*State) {}, HandingOver, 0},
		"a handover if unfit": {"mine, accepted", func(s *State) { s.Unfit = true }, HandingOver, 2 * time.Second},
	} {
		s := ours(seenAt(0, lock(x.lock)), Leading)
		s.Alive, s.Drain.Until = true, 0
		x.change(&s)
		s = testConfig().advance(s, testNow)
		if s.Phase != Draining || s.Why != x.why || s.Drain.Until != seconds(30) || s.Drain.CoolDown != x.cool || s.Drain.Kind.HandsOver() != (x.why == HandingOver) {
			t.Errorf("%s: %s because %s, for %v, then stays away for %v", name, s.Phase, s.Why, testNow.Mono.Until(s.Drain.Until), s.Drain.CoolDown)
		}
	}
	// A loss does not take back that the elector was told to stop.
	for _, stopping := range []bool{false, true} {
		for _, once := range []bool{false, true} {
			c, s := testConfig(), ours(seenAt(0, lock("equal", newer)), Leading)
			c.OneCycle, s.Stopping, s.Alive = once, stopping, true
			if s = c.advance(s, testNow); s.Stopping != (stopping || once) || s.Drain.Until != seconds(4) || s.Drain.Lost != RecordLost {
				t.Errorf("stopping %v, one cycle %v: %+v", stopping, once, s)
			}
		}
	}
}

// One that settles lets the lock lapse when it is told to stop: nobody can say that the
// earlier holder has ended.
func TestStoppingWhileSettling(t *testing.T) {
	for op, want := range map[Op]Phase{NoOp: Done, Renew: Settling} {
		for _, acts := range []bool{false, true} {
			s := ours(seenAt(0, lock("mine")), Settling)
			s.Stopping, s.Marked, s.Flight.Op = true, acts, op
			if s = testConfig().advance(s, testNow); s.Phase != want {
				t.Errorf("with a call %q, marked %v: %s because %s", op, acts, s.Phase, s.Why)
			}
		}
	}
}

// A release ends when it is known what became of the lock, and in any case after a cover.
func TestWhenAReleaseEnds(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*State)
		want   Phase
	}{
		"ours still":          {func(*State) {}, Releasing},
		"time is up":          {func(s *State) { s.Drain.Until = testNow.Mono }, Following},
		"a call is under way": {func(s *State) { s.Drain.Until, s.Flight.Op = testNow.Mono, Release }, Releasing},
		"gone":                {func(s *State) { s.Snap = lock("free", newer) }, Following},
		"gone, as it seems":   {func(s *State) { s.Snap, s.Known = lock("free", newer), Behind }, Releasing},
	} {
		s := ours(seenAt(0, lock("mine")), Releasing)
		x.change(&s)
		if s = testConfig().advance(s, testNow); s.Phase != x.want {
			t.Errorf("%s: %s because %s", name, s.Phase, s.Why)
		}
	}
}

// A term whose record was seen to be another's is lost for good, also when the record of before is put
// back; and an answer that comes after that gives no cover.
func TestARecordThatWasAnothersIsNotOursAgain(t *testing.T) {
	c := testConfig()
	restored := lock("mine", newer, newer)
	for name, x := range map[string]struct {
		phase Phase
		state func(*State)
	}{
		"draining after the cover's end": {Draining, func(s *State) { s.Alive, s.Drain.Lost, s.Cover = true, CoverLost, Cover{} }},
		"releasing, a call under way":    {Releasing, func(s *State) { s.Flight.Op = Renew }},
	} {
		s := ours(seenAt(0, lock("mine")), x.phase)
		x.state(&s)
		s.Snap = restored
		if s = c.advance(s, testNow); s.Phase != x.phase || !c.ours(s) {
			t.Fatalf("%s: not ours although nothing happened: %s", name, s.Phase)
		}
		s.Snap = lock("equal", newer)
		s = c.advance(s, testNow)
		s.Snap = restored
		s.Flight, s.Alive = Call{}, false
		if c.ours(s) || c.releasable(s) {
			t.Errorf("%s: ours again, by a record that was put back", name)
		}
		if s = c.advance(s, testNow); s.Phase != Following {
			t.Errorf("%s: %s because %s", name, s.Phase, s.Why)
		}
	}
	overtaken := ours(seenAt(0, lock("equal", newer)), Leading)
	overtaken.Cover, overtaken.Marked = Cover{}, false
	call := Call{Op: Renew, Sent: testNow, Marker: true}
	if s := c.acknowledged(overtaken, call, later(1, lock("mine"))); s.Cover != (Cover{}) || s.Marked {
		t.Errorf("an answer that was overtaken: cover %v, marked %v", s.Cover, s.Marked)
	}
}

// One that was stopped before it knew that its claim had been stored releases the lock then: there was no term
// that could be lost.
func TestReleasingWithoutATerm(t *testing.T) {
	s := seenAt(0, lock("mine"))
	s.Phase, s.Stopping, s.Own.Stamps[0], s.Drain.Until = Releasing, true, 7e6, seconds(10)
	if s = testConfig().advance(s, testNow); s.Phase != Releasing || !testConfig().releasable(s) {
		t.Errorf("%s because %s, and it may be released: %v", s.Phase, s.Why, testConfig().releasable(s))
	}
}
