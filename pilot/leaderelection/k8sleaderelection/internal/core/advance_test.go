package core

import (
	"testing"

	"incumbent.dev/incumbent/internal/record"
)

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
		"deleted":                 {lock("mine", deleted), LockDeleted},
		"recreated":               {lock("mine", recreation), LockDeleted},
		"record removed":          {lock("mine", func(s *Snapshot) { s.Content = record.Missing }), RecordEmptied},
		"first write of the term": {lock("mine", func(s *Snapshot) { s.Version = 15 }), IdentityConflict},
	} {
		s := State{Snap: x.lock, Term: Term{UID: "u", Transitions: 3, Token: 15}}
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
