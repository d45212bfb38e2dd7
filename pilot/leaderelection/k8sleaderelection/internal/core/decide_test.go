package core

import (
	"testing"
	"time"
)

// decided has the fields of an action that tests compare.
type decided struct {
	op   Op
	why  Reason
	wake float64 // from testNow; -1: never
}

func (d decided) check(t *testing.T, name string, a Action) {
	t.Helper()
	wake := Never
	if d.wake >= 0 {
		wake = seconds(d.wake)
	}
	if a.Op != d.op || a.Why != d.why || d.op == NoOp && a.Wake != wake {
		t.Errorf("%s: %s because %s, wakes in %v; want %s because %s, in %v",
			name, a.Op, a.Why, testNow.Mono.Until(a.Wake), d.op, d.why, testNow.Mono.Until(wake))
	}
}

func TestFollower_Waits(t *testing.T) {
	const free, lower, mine = "free", "lower, unmarked", "mine"
	for name, x := range map[string]struct {
		lock   string
		change func(*Config, *State)
		want   decided
	}{
		"nothing": {lower, nil, decided{Acquire, Preempted, 0}},
		// A back-off ends exactly at its time.
		"back-off":                      {mine, func(_ *Config, s *State) { s.BackOff.Until = seconds(1) }, decided{NoOp, BackingOff, 1}},
		"back-off ends now":             {mine, func(_ *Config, s *State) { s.BackOff.Until = testNow.Mono }, decided{Acquire, Reclaimed, 0}},
		"back-off as long as the lease": {"equal", func(_ *Config, s *State) { s.BackOff.Until = seconds(15) }, decided{NoOp, HeldByOther, 15}},
		"back-off within the lease":     {"equal", func(_ *Config, s *State) { s.BackOff.Until = seconds(3) }, decided{NoOp, HeldByOther, 15}},
		// Without a default revision, a ranked candidate waits, unless it was nominated.
		"default":                        {free, unsynced, decided{NoOp, Unsynced, 3}},
		"default, within the lease":      {"equal", unsynced, decided{NoOp, HeldByOther, 15}},
		"default, longer than the lease": {"equal", func(c *Config, s *State) { unsynced(c, s); s.SyncBy = seconds(16) }, decided{NoOp, Unsynced, 16}},
		"default until now":              {free, func(c *Config, s *State) { unsynced(c, s); s.SyncBy = testNow.Mono }, decided{Acquire, Free, 0}},
		"default, nominee":               {"nominated", func(c *Config, s *State) { unsynced(c, s); s.Since.Record = seconds(-9) }, decided{NoOp, Unsynced, 3}},
		"default, nominated itself":      {"transferred to me", unsynced, decided{Acquire, Reclaimed, 0}},
		"default, own record":            {mine, unsynced, decided{NoOp, Unsynced, 3}},
		"default, unranked":              {free, func(c *Config, s *State) { unsynced(c, s); c.Ranked = false }, decided{Acquire, Free, 0}},
		"fitness":                        {free, func(_ *Config, s *State) { s.Unfit = true }, decided{NoOp, NotFit, -1}},
		// A paused write does not cause an earlier wake-up.
		"retry":                     {mine, func(_ *Config, s *State) { s.Effort.Writes.Next = seconds(2) }, decided{NoOp, Retrying, 2}},
		"retry of an expired lease": {"equal", func(_ *Config, s *State) { s.Since.Record, s.Effort.Writes.Next = seconds(-15), seconds(2) }, decided{NoOp, Retrying, 2}},
		// Rank does not count during a hold or after being displaced. The later end counts.
		"hold":                        {"lower, unmarked, held", nil, decided{NoOp, HeldByOther, 10}},
		"hold ends now":               {"lower, unmarked, held", func(_ *Config, s *State) { s.Since.Hold = seconds(-10) }, decided{Acquire, Preempted, 0}},
		"hold ends now, no rank":      {"lower, unmarked, held", func(c *Config, s *State) { s.Since.Hold, c.Key = seconds(-10), "other" }, decided{NoOp, HeldByOther, 15.025}},
		"displaced":                   {lower, func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 4}},
		"hold, longer than displaced": {"lower, unmarked, held", func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 10}},
		"displaced, longer than hold": {"lower, unmarked, held", func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(12) }, decided{NoOp, HeldByOther, 10}},
		"displaced beyond the lease":  {lower, func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(22) }, decided{NoOp, HeldByOther, 15}},
		"displaced, lease expired":    {lower, func(_ *Config, s *State) { s.Since.Record, s.Displaced.NotBefore = seconds(-15), testNow.Mono }, decided{Acquire, Expired, 0}},
	} {
		c, s := testConfig(), seenAt(0, lock(x.lock))
		if s.Count = 3; x.change != nil {
			x.change(&c, &s)
		}
		x.want.check(t, name, c.decide(s, testNow))
	}
}

// unsynced waits for the default for 3 s more.
func unsynced(_ *Config, s *State) { s.Default, s.SyncBy = DefaultRevision{}, seconds(3) }

// A nominee that did not send a request, or does not want the lock now, releases it, unless an earlier holder may act.
func TestNominee_Unrequested(t *testing.T) {
	for name, x := range map[string]struct {
		lock   string
		change func(*State)
		want   decided
	}{
		"no request":                       {"nominated me", func(*State) {}, decided{Release, Unrequested, 0}},
		"request":                          {"nominated me", func(s *State) { s.Requesting.Wanted = true }, decided{Acquire, Reclaimed, 0}},
		"operator":                         {"transferred to me", func(*State) {}, decided{Acquire, Reclaimed, 0}},
		"operator, unfit":                  {"transferred to me", func(s *State) { s.Unfit = true }, decided{Release, Unrequested, 0}},
		"request, unfit":                   {"nominated me", func(s *State) { s.Requesting.Wanted, s.Unfit = true, true }, decided{Release, Unrequested, 0}},
		"earlier holder may act":           {"nominated me", func(s *State) { s.Earlier.Until = seconds(1) }, decided{Acquire, Reclaimed, 0}},
		"earlier holder has ended":         {"nominated me", func(s *State) { s.Earlier.Until = testNow.Mono }, decided{Release, Unrequested, 0}},
		"duplicate":                        {"nominated me", func(s *State) { s.Own.Duplicate = true }, decided{NoOp, HeldByOther, 2}},
		"back-off, earlier holder may act": {"nominated me", func(s *State) { s.Earlier.Until, s.BackOff.Until = seconds(1), seconds(5) }, decided{NoOp, BackingOff, 1}},
		"back-off, operator":               {"transferred to me", func(s *State) { s.BackOff.Until = seconds(5) }, decided{Acquire, Reclaimed, 0}},
		"back-off, has led since":          {"transferred to me", func(s *State) { s.BackOff.Until, s.Snap.Record.Renewed = seconds(5), 77e6 }, decided{NoOp, BackingOff, 5}},
	} {
		s := seenAt(0, lock(x.lock))
		x.change(&s)
		x.want.check(t, name, testConfig().decide(s, testNow))
	}
}

// The lease of a release is as short as possible, because peers wait for it.
func TestRelease_Record(t *testing.T) {
	s := ours(seenAt(0, lock("mine")), Releasing)
	want := Record{Lease: time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 3}
	a := testConfig().decide(s, testNow)
	if a.Op != Release || a.Record != want || a.Annotations != (Annotations{}) || a.Base != s.Snap {
		t.Errorf("%+v", a)
	}
	for next, want := range map[float64]Op{-1: Release, 0: Release, 1: NoOp} {
		s.Effort.Writes.Next = seconds(next)
		if a := testConfig().decide(s, testNow); a.Op != want || a.Op == NoOp && a.Wake != seconds(next) {
			t.Errorf("writes paused until %v: %s", next, call(a))
		}
	}
}

// The lease of a nomination differs from the own lease of the nominee, so that its first write changes the record.
func TestHandover_Record(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		lock Snapshot
		hold Hold
	}{
		"to a challenger": {lock("mine, accepted"), Hold{}},
		"operator": {
			lock("mine, to transfer", asked(func(r *Request) { r.Requester, r.Note = "kubectl", "maintenance" })),
			Hold{Holder: "b", Transitions: 4, Seconds: 60, Requester: "kubectl", Reason: HoldForTransfer, Note: "maintenance"},
		},
		"operator, no duration": {
			lock("mine, to transfer", asked(func(r *Request) { r.HoldSeconds = 0 })),
			Hold{Holder: "b", Transitions: 4, Seconds: 1, Reason: HoldForTransfer},
		},
	} {
		s := ours(seenAt(0, x.lock), Releasing)
		s.Count = 3
		a := c.decide(s, testNow)
		want := Record{Holder: "b", Key: "canary", Lease: 16 * time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 4}
		if a.Op != HandOver || a.Record != want || a.Annotations != (Annotations{Nominated: Nomination{Identity: "b", Transitions: 4}, Hold: x.hold}) {
			t.Errorf("%s: %s %+v with %+v", name, a.Op, a.Record, a.Annotations)
		}
	}
}
