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
		"past its limit":                   {func(_ *Config, s *State) { s.Alive, s.LimitAt = true, testNow.Mono }, Draining, Stopped, true},
		"past its limit, and told to stop": {func(_ *Config, s *State) { s.Alive, s.LimitAt, s.Stopping = true, testNow.Mono, true }, Done, DrainStuck, true},
		"the same, with a call under way": {func(_ *Config, s *State) {
			s.Alive, s.LimitAt, s.Stopping, s.Flight.Op = true, testNow.Mono, true, Renew
		}, Draining, Stopped, true},
		"drained past its limit":             {func(_ *Config, s *State) { s.LimitAt, s.Stopping, s.Overdue = testNow.Mono, true, true }, Releasing, DrainedAll, true},
		"drained to stop":                    {func(_ *Config, s *State) { s.Stopping = true }, Releasing, DrainedAll, false},
		"drained to stop, without a release": {func(c *Config, s *State) { s.Stopping, c.Release = true, false }, Done, Stopped, false},
		"drained to step down":               {func(_ *Config, s *State) { s.StepDown = true }, Releasing, DrainedAll, false},
		"drained to hand over":               {func(_ *Config, s *State) { s.Giving = true }, Releasing, DrainedAll, false},
		"drained after a loss":               {func(_ *Config, s *State) { s.Lost, s.Cover = true, Cover{} }, Following, Stopped, false},
		"taken meanwhile":                    {func(_ *Config, s *State) { s.StepDown, s.Snap = true, lock("equal", newer) }, Following, Superseded, false},
	} {
		c, s := testConfig(), ours(seenAt(0, lock("mine")), Draining)
		s.Why = Stopped
		x.change(&c, &s)
		s = c.settle(s, testNow)
		if s.Phase != x.want || s.Why != x.why || s.Overdue != x.overdue {
			t.Errorf("%s: %s because %s, overdue %v", name, s.Phase, s.Why, s.Overdue)
		}
		if s.Phase == Releasing && s.ReleaseBy != seconds(10) {
			t.Errorf("%s: releases for %v", name, testNow.Mono.Until(s.ReleaseBy))
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
		"a step-down":         {"mine", func(s *State) { s.StepDown = true }, SteppedDown, 0},
		"a handover":          {"mine, accepted", func(*State) {}, HandingOver, 0},
		"a handover if unfit": {"mine, accepted", func(s *State) { s.Unfit = true }, HandingOver, 2 * time.Second},
	} {
		s := ours(seenAt(0, lock(x.lock)), Leading)
		s.Alive, s.LimitAt = true, 0
		x.change(&s)
		s = testConfig().settle(s, testNow)
		if s.Phase != Draining || s.Why != x.why || s.LimitAt != seconds(30) || s.Cool != x.cool || s.Giving != (x.why == HandingOver) {
			t.Errorf("%s: %s because %s, for %v, then stays away for %v", name, s.Phase, s.Why, testNow.Mono.Until(s.LimitAt), s.Cool)
		}
	}
	// A loss does not take back that the elector was told to stop.
	for _, stopping := range []bool{false, true} {
		for _, once := range []bool{false, true} {
			c, s := testConfig(), ours(seenAt(0, lock("equal", newer)), Leading)
			c.OneCycle, s.Stopping, s.Alive = once, stopping, true
			if s = c.settle(s, testNow); s.Stopping != (stopping || once) || s.LimitAt != seconds(4) || !s.Lost {
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
			if s = testConfig().settle(s, testNow); s.Phase != want {
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
		"time is up":          {func(s *State) { s.ReleaseBy = testNow.Mono }, Following},
		"a call is under way": {func(s *State) { s.ReleaseBy, s.Flight.Op = testNow.Mono, Release }, Releasing},
		"gone":                {func(s *State) { s.Snap = lock("free", newer) }, Following},
		"gone, as it seems":   {func(s *State) { s.Snap, s.Stale = lock("free", newer), true }, Releasing},
	} {
		s := ours(seenAt(0, lock("mine")), Releasing)
		x.change(&s)
		if s = testConfig().settle(s, testNow); s.Phase != x.want {
			t.Errorf("%s: %s because %s", name, s.Phase, s.Why)
		}
	}
}
