package core

import (
	"testing"
	"time"
)

// Run functions that exceed their limit are reported. If the elector stops, it ends without a release.
func TestDraining_Overdue(t *testing.T) {
	for stopping, want := range map[bool]Phase{false: Draining, true: Done} {
		s := ours(seenAt(0, lock("mine")), Draining)
		s.Running, s.Stopping, s.Drain.Until = true, stopping, testNow.Mono
		if s = testConfig().advance(s, testNow); s.Phase != want || !s.Drain.Overdue {
			t.Errorf("stopping %v: %s because %s, overdue %v", stopping, s.Phase, s.Why, s.Drain.Overdue)
		}
	}
}

// A term whose record showed another holder stays lost, also if an older state is restored.
func TestRecordLost_Final(t *testing.T) {
	c := testConfig()
	for _, phase := range []Phase{Draining, Releasing} {
		s := ours(seenAt(0, lock("mine")), phase)
		s.Running, s.Flight.Op, s.Snap = phase == Draining, Renew, lock("equal", newer)
		s = c.advance(s, testNow)
		if s.Snap = lock("mine", newer); s.Phase != phase || c.ownsTerm(s) || c.releasable(s) {
			t.Errorf("%s: %s, own again after a restore", phase, s.Phase)
		}
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
		"a step-down":                  {func(s *State) { s.Drain.StepDown = true }, 8, 3, 0},
		"the first":                    {func(s *State) { s.Drain.StepDown, s.BackOff.Steps = true, 0 }, 2, 1, 0},
		"a step-down that handed over": {func(s *State) { s.Drain.StepDown, s.Drain.HandOver = true, true }, 8, 3, 0},
		"a handover":                   {func(s *State) { s.Drain.HandOver = true }, 0, 2, 0},
		"one of many":                  {func(s *State) { s.Drain.StepDown, s.BackOff.Steps = true, 5 }, 64, 5, 0},
		"operator command":             {func(s *State) { s.Drain.HandOver, s.Drain.CoolDown = true, 40*time.Second }, 0, 2, 40},
		"step-down by an operator":     {func(s *State) { s.Drain.StepDown, s.Drain.CoolDown = true, time.Second }, 8, 3, 1},
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
