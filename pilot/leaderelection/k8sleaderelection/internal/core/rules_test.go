package core

import (
	"testing"
	"time"
)

// seconds is an instant so many seconds after the lock was first seen.
func seconds(n float64) Instant { return testNow.Mono.After(time.Duration(n * float64(time.Second))) }

// follower has seen the lock at testNow, with a watch up, and knows the default.
func follower(c Config, snap Snapshot, revision string) State {
	s := State{Watch: true, Default: DefaultRevision{Synced: true, Revision: revision}}
	return c.observe(s, Input{Kind: Seen, Now: testNow, Snap: snap})
}

// TestOpening: from when on a candidate may take a lock, why, and from when on it may
// then act. Rules 4, 6, 7 and 8 of the handover, and what is promised of unreadable
// records, for a candidate of the default revision and for one of another.
func TestOpening(t *testing.T) {
	const never, at0 = -1, 0
	for _, rule := range []struct {
		lock string
		// why, open and act for a candidate of the default revision
		why       Reason
		open, act float64
		// the same for a candidate of another revision
		lowWhy          Reason
		lowOpen, lowAct float64
	}{
		{"absent", Created, at0, at0, Created, 0.025, at0},
		{"no record", Filled, at0, at0, Filled, 0.025, at0},
		{"free", Free, at0, at0, Free, 0.025, at0},
		{"free, own marker left", Free, at0, at0, Free, 0.025, at0},
		// Rule 6: a marker of another term is evidence, released lock or not. Who would
		// have to settle leaves the lock for a RetryPeriod to whoever would not.
		{"free, marker left", Free, 2, 15, Free, 2, 15},
		{"no record, marker left", Filled, 2, 15, Filled, 2, 15},
		{"peer, marker left", Expired, 15, 20, Expired, 15.025, 20},
		{"unreadable", Replaced, 15, 15, Replaced, 15.025, 15},
		// Rule 7: one's own name, with a marker and without.
		{"mine", Reclaimed, at0, at0, Reclaimed, at0, at0},
		{"mine, unmarked", Reclaimed, at0, 15, Reclaimed, at0, 15},
		{"mine, other's marker", Reclaimed, at0, 15, Reclaimed, at0, 15},
		// Rule 4: a nominee that does not come.
		{"nominated", Nominated, 2, at0, Nominated, 2.025, at0},
		{"equal", Expired, 15, 15, Expired, 15.025, 15},
		{"equal, unmarked", Expired, 15, 20, Expired, 15.025, 20},
		// Rule 6: rank goes before, and settles; with PeerGrace for who has no marker.
		{"lower", Preempted, at0, 15, Expired, 15.025, 15},
		{"lower, unmarked", Preempted, at0, 20, Expired, 15.025, 20},
		// Rule 9: while an operator's hold stands, rank does not count.
		{"lower, unmarked, held", Preempted, 10, 20, Expired, 15.025, 20},
	} {
		snap := testSnapshots()[rule.lock]
		check := func(key string, why Reason, open, act float64) {
			t.Helper()
			c := testConfig()
			c.Key = key
			s := follower(c, snap, "stable")
			at, gotWhy := c.opening(s)
			if gotWhy != why || max(at, testNow.Mono) != seconds(open) {
				t.Errorf("%s, seen by %s: opens %v after the sight because %s, want %vs because %s",
					rule.lock, key, testNow.Mono.Until(at), gotWhy, open, why)
			}
			if got := max(c.settledAt(s), testNow.Mono); got != seconds(act) {
				t.Errorf("%s, seen by %s: may act %v after the sight, want %vs", rule.lock, key, testNow.Mono.Until(got), act)
			}
		}
		check("stable", rule.why, rule.open, rule.act)
		check("canary", rule.lowWhy, rule.lowOpen, rule.lowAct)
	}
}

// TestDisplaced: for how long after a change a holder that is gone from the record is
// waited for. The lock of b was seen at testNow, and the change 10 s later.
func TestDisplaced(t *testing.T) {
	c := testConfig()
	c.PeerGrace = 0
	locks := testSnapshots()
	acting, peer := locks["equal"], locks["equal, unmarked"]
	after := func(base Snapshot, change func(*Snapshot)) Snapshot {
		base.Version++
		base.Sum++
		change(&base)
		return base
	}
	empty := func(s *Snapshot) { s.Record.Holder, s.Notes = "", Notes{} }
	for _, step := range []struct {
		name   string
		before Snapshot
		next   Snapshot
		until  float64 // 0: not at all
	}{
		{"a drained release", acting, after(acting, empty), 0},
		{"a peer's release", peer, after(peer, empty), 0},
		{"a handover", acting, after(acting, func(s *Snapshot) {
			s.Record.Transitions++
			s.Record.Holder, s.Notes = "c", Notes{Nominated: Nomination{Identity: "c", Transitions: s.Record.Transitions}}
			s.Record.Acquired = s.Record.Renewed
		}), 0},
		{"emptied, the marker left", acting, after(acting, func(s *Snapshot) { s.Record.Holder = "" }), 25},
		{"emptied, in another term", acting, after(acting, func(s *Snapshot) { empty(s); s.Record.Transitions++ }), 25},
		{"deleted", acting, Snapshot{Version: 21}, 25},
		{"deleted and created", acting, after(acting, func(s *Snapshot) { s.UID.First, s.Record.Holder = "v", "c" }), 25},
		{"put back", acting, Snapshot{Exists: true, UID: UID{First: "u"}, Version: 9, Content: Readable, Record: Record{Holder: "c", Transitions: 1}}, 25},
		{"preempted", acting, after(acting, func(s *Snapshot) {
			s.Record.Holder, s.Notes = "c", Notes{}
			s.Record.Transitions++
		}), 15},
		{"taken by one who acts", acting, after(acting, func(s *Snapshot) {
			s.Record.Holder, s.Notes.Marker = "c", Marker{Identity: "c", Transitions: 4}
			s.Record.Transitions++
		}), 0},
		{"renewed", acting, after(acting, func(s *Snapshot) { s.Record.Renewed++ }), 0},
	} {
		s := follower(c, step.before, "stable")
		now := testNow
		now.Mono = seconds(10)
		s = c.observe(s, Input{Kind: Seen, Now: now, Snap: step.next})
		want := Instant(0)
		if step.until > 0 {
			want = seconds(step.until)
		}
		if s.Earlier.Until != want {
			t.Errorf("%s: waits until %v after the sight, want %v", step.name, testNow.Mono.Until(s.Earlier.Until), testNow.Mono.Until(want))
		}
	}
}

// TestLongestLeaseCounts: the longer of one's own and the record's, within bounds.
func TestLongestLeaseCounts(t *testing.T) {
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

// TestStampChanges: a renewal always differs, by istiod's granularity, from what is there.
func TestStampChanges(t *testing.T) {
	const wall = 1_780_000_000
	for _, recorded := range []Stamp{0, 1, wall * 1e6, wall*1e6 + 1, wall*1e6 + 999_999, (wall + 5) * 1e6, (wall + 200_000) * 1e6} {
		for _, ns := range []int64{0, 1, 999_999_999} {
			got := nextStamp(recorded, wall*1e9+ns)
			if got/stampSecond == recorded/stampSecond || got%stampSecond != 0 {
				t.Errorf("over %d at wall %d+%dns: %d", recorded, wall, ns, got)
			}
		}
	}
}

// TestNextTransition: a new object begins at 0 as client-go's and istiod's do, and one without
// a record at 1; one whose record went goes on from what was read last.
func TestNextTransition(t *testing.T) {
	for name, test := range map[string]struct {
		s    State
		want int
	}{
		"no object":                {State{}, 0},
		"a deleted object":         {State{Count: 7}, 0},
		"without a record":         {State{Snap: Snapshot{Exists: true, Content: Missing}}, 1},
		"whose record was removed": {State{Count: 7, Snap: Snapshot{Exists: true, Content: Missing}}, 8},
		"with a record":            {State{Count: 7, Snap: Snapshot{Exists: true, Content: Readable, Record: Record{Transitions: 7}}}, 8},
		"an unreadable one":        {State{Count: 7, Snap: Snapshot{Exists: true, Content: Unreadable}}, 8},
		"with a floor":             {State{Snap: Snapshot{Exists: true, Content: Missing, Floor: 3}}, 4},
		"at its end":               {State{Count: maxTransitions, Snap: Snapshot{Exists: true, Content: Readable}}, maxTransitions},
	} {
		if got := test.s.nextTransition(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
