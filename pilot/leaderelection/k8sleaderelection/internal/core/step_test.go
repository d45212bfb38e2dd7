package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// The longer of the own and the recorded lease counts, within bounds.
func TestLease(t *testing.T) {
	c := testConfig()
	for recorded, want := range map[time.Duration]time.Duration{
		0: 15 * time.Second, time.Second: 15 * time.Second, 40 * time.Second: 40 * time.Second,
		time.Hour: time.Hour, 1000 * time.Hour: time.Hour,
	} {
		if got := c.lease(Record{Lease: recorded}); got != want {
			t.Errorf("a recorded lease of %v counts as %v, want %v", recorded, got, want)
		}
	}
	c.Lease = 10 * time.Minute
	if got := c.lease(Record{Lease: 1000 * time.Hour}); got != 100*time.Minute {
		t.Errorf("the bound at a lease of 10m is %v, want ten times that", got)
	}
}

// The lock was seen at testNow. PeerGrace is 5 s.
func TestMayActUntil(t *testing.T) {
	c := testConfig()
	wrote, twin := func(s *State) { s.Own.Stamps[0] = 7e6 }, func(s *State) { s.Own.Stamps[0], s.Own.Duplicate = 7e6, true }
	long := func(s *Snapshot) { s.Record.Lease = 40 * time.Second }
	for name, x := range map[string]struct {
		lock   Snapshot
		change func(*State)
		until  float64
	}{
		"longer lease":                 {lock("equal", long), nil, 40},
		"deleted":                      {lock("equal", deleted), nil, 0},
		"record removed":               {lock("equal", func(s *Snapshot) { s.Content = record.Missing }), nil, 0},
		"own record":                   {lock("mine, unmarked"), wrote, 0},
		"previous process, acting":     {lock("mine"), nil, 0},
		"previous process, not acting": {lock("mine, unmarked"), nil, 15},
		"duplicate":                    {lock("mine"), twin, 15},
	} {
		s := seenAt(0, x.lock)
		if x.change != nil {
			x.change(&s)
		}
		want := Instant(0)
		if x.until > 0 {
			want = seconds(x.until)
		}
		if got := c.mayActUntil(s); got != want {
			t.Errorf("%s: until %v, want %v", name, testNow.Mono.Until(got), testNow.Mono.Until(want))
		}
		if s.Earlier.Until = seconds(17); c.settledAt(s) != max(want, seconds(17)) {
			t.Errorf("%s: settled in %v", name, testNow.Mono.Until(c.settledAt(s)))
		}
	}
	// As with Istio's elector, a candidate that preempts a holder acts immediately. Otherwise it settles.
	c.Immediate = true
	for name, want := range map[string]Instant{"lower": 0, "free": seconds(17), "peer, marker left": seconds(20)} {
		s := seenAt(0, lock(name))
		s.Earlier.Until = seconds(17)
		if got := c.settledAt(s); got != want {
			t.Errorf("immediate, %s: settled in %v", name, testNow.Mono.Until(got))
		}
	}
}

func TestActsUntil(t *testing.T) {
	for _, x := range []struct {
		lock  string
		phase Phase
		acts  bool
	}{
		{"equal, unmarked", Following, true}, {"nominated", Following, false}, {"free", Following, false}, {"mine", Following, false},
		{"mine", Settling, false}, {"mine", Leading, true}, {"mine", Draining, true}, {"mine", Releasing, false},
	} {
		s := seenAt(0, lock(x.lock))
		s.Phase = x.phase
		if want := map[bool]Instant{true: seconds(15)}[x.acts]; testConfig().ActsUntil(s) != want {
			t.Errorf("%s, while %s: acts %v", x.lock, x.phase, !x.acts)
		}
	}
}
