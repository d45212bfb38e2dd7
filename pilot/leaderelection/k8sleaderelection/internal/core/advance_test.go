package core

import (
	"testing"
	"time"
)

func TestDraining_End(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*Config, *State)
		want    Phase
		why     Reason
		overdue bool
	}{
		"running":                  {func(_ *Config, s *State) { s.Running = true }, Draining, Stopped, false},
		"past its limit":           {func(_ *Config, s *State) { s.Running, s.Drain.Until = true, testNow.Mono }, Draining, Stopped, true},
		"past its limit, stopping": {func(_ *Config, s *State) { s.Running, s.Drain.Until, s.Stopping = true, testNow.Mono, true }, Done, DrainStuck, true},
		"the same with a call in flight": {func(_ *Config, s *State) {
			s.Running, s.Drain.Until, s.Stopping, s.Flight.Op = true, testNow.Mono, true, Renew
		}, Draining, Stopped, true},
		"drained past its limit":        {func(_ *Config, s *State) { s.Drain.Until, s.Stopping, s.Drain.Overdue = testNow.Mono, true, true }, Releasing, DrainedAll, true},
		"drained, stopping":             {func(_ *Config, s *State) { s.Stopping = true }, Releasing, DrainedAll, false},
		"drained, stopping, no release": {func(c *Config, s *State) { s.Stopping, c.Release = true, false }, Done, Stopped, false},
		"drained to step down":          {func(_ *Config, s *State) { s.Drain.Kind = DrainToStepDown }, Releasing, DrainedAll, false},
		"drained to hand over":          {func(_ *Config, s *State) { s.Drain.Kind = DrainToHandOver }, Releasing, DrainedAll, false},
		"drained after a loss":          {func(_ *Config, s *State) { s.Drain.Lost, s.Validity = ValidityLost, Validity{} }, Following, Stopped, false},
		"record of another holder":      {func(_ *Config, s *State) { s.Drain.Kind, s.Snap = DrainToStepDown, lock("equal", newer) }, Following, Superseded, false},
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

// The run functions of a leader that ends in order have StopLimit.
func TestDraining_Limit(t *testing.T) {
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
		s.Running, s.Drain.Until = true, 0
		x.change(&s)
		s = testConfig().advance(s, testNow)
		if s.Phase != Draining || s.Why != x.why || s.Drain.Until != seconds(30) || s.Drain.CoolDown != x.cool || s.Drain.Kind.HandsOver() != (x.why == HandingOver) {
			t.Errorf("%s: %s because %s, for %v, cool-down %v", name, s.Phase, s.Why, testNow.Mono.Until(s.Drain.Until), s.Drain.CoolDown)
		}
	}
	// A loss does not cancel a stop.
	for _, stopping := range []bool{false, true} {
		for _, once := range []bool{false, true} {
			c, s := testConfig(), ours(seenAt(0, lock("equal", newer)), Leading)
			c.OneCycle, s.Stopping, s.Running = once, stopping, true
			if s = c.advance(s, testNow); s.Stopping != (stopping || once) || s.Drain.Until != seconds(4) || s.Drain.Lost != RecordLost {
				t.Errorf("stopping %v, one cycle %v: %+v", stopping, once, s)
			}
		}
	}
}

// A release ends when the state of the lock is known, at the latest after RenewDeadline.
func TestReleasing_End(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*State)
		want   Phase
	}{
		"own record":               {func(*State) {}, Releasing},
		"deadline":                 {func(s *State) { s.Drain.Until = testNow.Mono }, Following},
		"call in flight":           {func(s *State) { s.Drain.Until, s.Flight.Op = testNow.Mono, Release }, Releasing},
		"gone":                     {func(s *State) { s.Snap = lock("free", newer) }, Following},
		"gone in a stale snapshot": {func(s *State) { s.Snap, s.Known = lock("free", newer), Stale }, Releasing},
	} {
		s := ours(seenAt(0, lock("mine")), Releasing)
		x.change(&s)
		if s = testConfig().advance(s, testNow); s.Phase != x.want {
			t.Errorf("%s: %s because %s", name, s.Phase, s.Why)
		}
	}
}

// A term whose record showed another holder is lost for good, also after a restore.
func TestRecordLost_Final(t *testing.T) {
	c := testConfig()
	restored := lock("mine", newer, newer)
	for name, x := range map[string]struct {
		phase Phase
		state func(*State)
	}{
		"draining after the end of validity": {Draining, func(s *State) { s.Running, s.Drain.Lost, s.Validity = true, ValidityLost, Validity{} }},
		"releasing, call in flight":          {Releasing, func(s *State) { s.Flight.Op = Renew }},
	} {
		s := ours(seenAt(0, lock("mine")), x.phase)
		x.state(&s)
		s.Snap = restored
		if s = c.advance(s, testNow); s.Phase != x.phase || !c.ownsTerm(s) {
			t.Fatalf("%s: lost without a change: %s", name, s.Phase)
		}
		s.Snap = lock("equal", newer)
		s = c.advance(s, testNow)
		s.Snap = restored
		s.Flight, s.Running = Call{}, false
		if c.ownsTerm(s) || c.releasable(s) {
			t.Errorf("%s: own again after a restore", name)
		}
		if s = c.advance(s, testNow); s.Phase != Following {
			t.Errorf("%s: %s because %s", name, s.Phase, s.Why)
		}
	}
	overtaken := ours(seenAt(0, lock("equal", newer)), Leading)
	overtaken.Validity, overtaken.Marked = Validity{}, false
	call := Call{Op: Renew, Sent: testNow, Marker: true}
	if s := c.acknowledged(overtaken, call, later(1, lock("mine"))); s.Validity != (Validity{}) || s.Marked {
		t.Errorf("late reply: validity %v, marked %v", s.Validity, s.Marked)
	}
}

// A process stopped before it received the reply to its acquire releases the lock.
func TestReleasing_WithoutTerm(t *testing.T) {
	s := seenAt(0, lock("mine"))
	s.Phase, s.Stopping, s.Own.Stamps[0], s.Drain.Until = Releasing, true, 7e6, seconds(10)
	if s = testConfig().advance(s, testNow); s.Phase != Releasing || !testConfig().releasable(s) {
		t.Errorf("%s because %s, releasable: %v", s.Phase, s.Why, testConfig().releasable(s))
	}
}

func TestLossReason(t *testing.T) {
	for name, x := range map[string]struct {
		lock Snapshot
		want Reason
	}{
		"deleted":                      {lock("mine", deleted), LockDeleted},
		"recreated":                    {lock("mine", recreation), LockDeleted},
		"unreadable":                   {lock("mine", unreadable), RecordUnreadable},
		"an older state":               {lock("mine", older), HistoryRewound},
		"record removed":               {lock("mine", func(s *Snapshot) { s.Content = Missing }), RecordEmptied},
		"emptied":                      {lock("mine", released), RecordEmptied},
		"one of two objects":           {lock("mine", func(s *Snapshot) { s.Halves = InFirst }), HalfLost},
		"another holder in one object": {lock("equal", func(s *Snapshot) { s.Halves = InFirst }), Superseded},
		"another holder in both":       {lock("equal", func(s *Snapshot) { s.Halves = InFirst | InSecond }), Superseded},
		"own name, other writer":       {lock("mine"), IdentityConflict},
		"first write of the term":      {lock("mine", func(s *Snapshot) { s.Version = 15 }), IdentityConflict},
		"another holder":               {lock("equal"), Superseded},
		"older and unreadable":         {lock("mine", older, unreadable), RecordUnreadable},
	} {
		s := State{Snap: x.lock, Term: Term{UID: UID{First: "u"}, Transitions: 3, Token: 15}}
		if got := testConfig().lossReason(s); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

func TestReleaseReason(t *testing.T) {
	c, good := testConfig(), ours(seenAt(0, lock("mine")), Draining)
	ended := good
	ended.Term = Term{}
	for name, x := range map[string]struct {
		s    State
		sent bool
		gone bool
		want Reason
	}{
		"deadline":                     {good, true, false, LeftToExpire},
		"released":                     {good, true, true, Released},
		"never acquired":               {ended, false, true, Stopped},
		"acquired by another":          {ours(seenAt(0, lock("equal")), Releasing), false, true, Superseded},
		"never acquired, but released": {ended, true, true, Released},
	} {
		x.s.Drain.Sent = x.sent
		if got := c.releaseReason(x.s, x.gone); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
}

// A term that has ended leaves only its back-off behind.
func TestFollow_State(t *testing.T) {
	c := testConfig() // RetryPeriod 2 s
	for name, x := range map[string]struct {
		change func(*State)
		off    float64
		steps  uint8
		cool   float64
	}{
		"a loss":                       {func(*State) {}, 0, 2, 0},
		"a loss after a lease":         {func(s *State) { s.BeganAt = seconds(-15.001) }, 0, 0, 0},
		"a loss within a lease":        {func(s *State) { s.BeganAt = seconds(-15) }, 0, 2, 0},
		"a step-down":                  {func(s *State) { s.Drain.Kind = DrainToStepDown }, 8, 3, 0},
		"the first":                    {func(s *State) { s.Drain.Kind, s.BackOff.Steps = DrainToStepDown, 0 }, 2, 1, 0},
		"a step-down after a lease":    {func(s *State) { s.Drain.Kind, s.BeganAt = DrainToStepDown, seconds(-16) }, 2, 1, 0},
		"a step-down that handed over": {func(s *State) { s.Drain.Kind = DrainToStepDown | DrainToHandOver }, 8, 3, 0},
		"a handover":                   {func(s *State) { s.Drain.Kind = DrainToHandOver }, 0, 2, 0},
		"one of many":                  {func(s *State) { s.Drain.Kind, s.BackOff.Steps = DrainToStepDown, 5 }, 64, 5, 0},
		"operator command":             {func(s *State) { s.Drain.Kind, s.Drain.CoolDown = DrainToHandOver, 40*time.Second }, 0, 2, 40},
		"step-down by an operator":     {func(s *State) { s.Drain.Kind, s.Drain.CoolDown = DrainToStepDown, time.Second }, 8, 3, 1},
		"duplicate":                    {func(s *State) { s.Own.Duplicate = true }, 15, 2, 0},
	} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Drain.Lost, s.Drain.Overdue, s.Requesting.Wanted, s.Drain.Sent, s.BackOff.Steps = RecordLost, true, true, true, 2
		x.change(&s)
		twin := s.Own.Duplicate
		s = c.follow(s, testNow, Superseded)
		backOff := BackOff{Steps: x.steps}
		if x.off > 0 {
			backOff.Until = seconds(x.off)
		}
		if x.cool > 0 {
			backOff.CoolDown = seconds(x.cool)
		}
		want := seenAt(0, lock("mine"))
		want.Phase, want.Why, want.BackOff, want.Own.Duplicate = Following, Superseded, backOff, twin
		want.Own, want.BeganAt = s.Own, s.BeganAt
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
		"earlier holder may act":   {"mine", func(_ *Config, s *State) { s.Earlier.Until = seconds(1) }, Done},
		"earlier holder has ended": {"mine", func(_ *Config, s *State) { s.Earlier.Until = testNow.Mono }, Releasing},
		"call in flight":           {"mine", func(_ *Config, s *State) { s.Flight.Op = Read }, Following},
		"not stopping":             {"mine", func(_ *Config, s *State) { s.Stopping = false }, Following},
	} {
		config, s := c, seenAt(0, lock(x.lock))
		s.Stopping, s.Own.Stamps[0] = true, 7e6
		if x.lock == "equal" {
			s.Own.Stamps[0] = 0
		}
		x.change(&config, &s)
		s = config.advanceFollowing(s, testNow)
		if s.Phase != x.want || s.Phase == Releasing && s.Drain.Until != seconds(10) || s.Phase != Following && s.Why != Stopped {
			t.Errorf("%s: %s because %s, until %v", name, s.Phase, s.Why, testNow.Mono.Until(s.Drain.Until))
		}
	}
}
