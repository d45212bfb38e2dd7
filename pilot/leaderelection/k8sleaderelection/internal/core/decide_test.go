package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
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
		// A back-off ends exactly at its time.
		"back-off as long as the lease": {"equal", func(_ *Config, s *State) { s.BackOff.Until = seconds(15) }, decided{NoOp, HeldByOther, 15}},
		// Without a default revision, a ranked candidate waits, unless it was nominated.
		"default":                        {free, unsynced, decided{NoOp, Unsynced, 3}},
		"default, within the lease":      {"equal", unsynced, decided{NoOp, HeldByOther, 15}},
		"default, longer than the lease": {"equal", func(c *Config, s *State) { unsynced(c, s); s.SyncBy = seconds(16) }, decided{NoOp, Unsynced, 16}},
		"default, nominated itself":      {"transferred to me", unsynced, decided{Acquire, Reclaimed, 0}},
		"default, unranked":              {free, func(c *Config, s *State) { unsynced(c, s); c.Ranked = false }, decided{Acquire, Free, 0}},
		// A paused write does not cause an earlier wake-up.
		// Rank does not count during a hold or after being displaced. The later end counts.
		"hold":                        {"lower, unmarked, held", nil, decided{NoOp, HeldByOther, 10}},
		"hold ends now":               {"lower, unmarked, held", func(_ *Config, s *State) { s.Since.Hold = seconds(-10) }, decided{Acquire, Preempted, 0}},
		"hold ends now, no rank":      {"lower, unmarked, held", func(c *Config, s *State) { s.Since.Hold, c.Key = seconds(-10), "other" }, decided{NoOp, HeldByOther, 15.025}},
		"displaced":                   {lower, func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 4}},
		"hold, longer than displaced": {"lower, unmarked, held", func(_ *Config, s *State) { s.Displaced.NotBefore = seconds(4) }, decided{NoOp, HeldByOther, 10}},
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
		"earlier holder has ended":         {"nominated me", func(s *State) { s.Earlier.Until = testNow.Mono }, decided{Release, Unrequested, 0}},
		"duplicate":                        {"nominated me", func(s *State) { s.Own.Duplicate = true }, decided{NoOp, HeldByOther, 2}},
		"back-off, earlier holder may act": {"nominated me", func(s *State) { s.Earlier.Until, s.BackOff.Until = seconds(1), seconds(5) }, decided{NoOp, BackingOff, 1}},
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
		"operator": {
			lock("mine, to transfer", asked(func(r *Request) { r.Requester, r.Note = "kubectl", "maintenance" })),
			Hold{Holder: "b", Transitions: 4, Seconds: 60, Requester: "kubectl", Reason: record.HoldForTransfer, Note: "maintenance"},
		},
		"operator, no duration": {
			lock("mine, to transfer", asked(func(r *Request) { r.HoldSeconds = 0 })),
			Hold{Holder: "b", Transitions: 4, Seconds: 1, Reason: record.HoldForTransfer},
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
