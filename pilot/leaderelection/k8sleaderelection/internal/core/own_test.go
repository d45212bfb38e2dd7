package core

import (
	"testing"

	"incumbent.dev/incumbent/internal/record"
)

// A record with the own name that this process did not write was written by another process of that name.
func TestObserve_Duplicate(t *testing.T) {
	c := testConfig()
	acting := []func(*Snapshot){newer, renewed}
	for name, x := range map[string]struct {
		before, next Snapshot
		twin, wrote  bool
		want         bool
	}{
		"acts in a restored state":       {lock("equal"), lock("mine", older, renewed), false, false, false},
		"acts in the same version":       {lock("equal"), lock("mine", renewed), false, false, true},
		"renews without a marker":        {lock("mine, unmarked"), lock("mine, unmarked", acting...), false, false, true},
		"other bytes of the same record": {lock("mine, unmarked"), lock("mine, unmarked", newer, func(s *Snapshot) { s.Sum++ }), false, false, false},
		"deleted":                        {lock("mine"), lock("mine", deleted, newer), true, false, false},
		"unreadable":                     {lock("mine"), lock("mine", unreadable, newer), true, false, false},
		"nominated again":                {lock("mine"), lock("mine", newer, nominated("a", 5)), false, false, false},
		"known duplicate, nominated":     {lock("mine"), lock("mine", newer, nominated("a", 5)), true, false, true},
		"written over a deleted record":  {lock("mine", deleted), lock("mine, unmarked", newer, renewed), false, false, false},
	} {
		s := seenAt(0, x.before)
		s.Own.Duplicate = x.twin
		if x.wrote {
			s.Own = wroteLast(s.Own, x.next.Record)
		}
		if got := c.observe(&s, later(1, x.next)).Own.Duplicate; got != x.want {
			t.Errorf("%s: duplicate %v", name, got)
		}
	}
}

// A rejected write does not count as sent, unless an earlier attempt may have been stored.
func TestOwn_Rejected(t *testing.T) {
	first, second := lock("mine").Record, lock("mine", renewed).Record
	var empty Own
	if got := empty.sent(first, testNow).rejected(first); got != empty {
		t.Errorf("one write: %+v", got)
	}
	both := empty.sent(first, testNow).sent(second, testNow)
	both.Acked = writeOf(second)
	want := Own{Writes: [4]Write{writeOf(first)}, Unseen: 1}
	if got := both.rejected(second); got != want {
		t.Errorf("second write: %+v", got)
	}
	if got := both.rejected(first); got != both {
		t.Errorf("earlier write: %+v", got)
	}
	again := both.sent(second, testNow)
	if got := again.rejected(second); got != again {
		t.Errorf("sent again: %+v", got)
	}
}

// If all writes are rejected with a conflict in an unchanged version, each has a stamp.
func TestOwnStamp_AllRejected(t *testing.T) {
	c := testConfig()
	s := seenAt(0, lock("free"))
	for range 2 * len(s.Own.Writes) {
		r := Record{Renewed: c.ownStamp(&s, testNow.Wall), Transitions: 4}
		if r.Renewed != nowStamp {
			t.Fatalf("stamp %d after %+v", r.Renewed, s.Own)
		}
		s.Own = s.Own.sent(r, ClockReading{}).rejected(r)
	}
}

// Only a write over the own record needs a greater stamp. After a restore, an own stamp above the recorded one is not used again.
func TestConfigNextStamp(t *testing.T) {
	const wall = 1_780_000_000
	const s, now = record.Second, Stamp(wall) * record.Second
	nominated := Annotations{Nominated: Nomination{Identity: "a", Transitions: 3}}
	for name, x := range map[string]struct {
		holder     string
		notes      Annotations
		own        Stamp // relative to the wall clock
		resolution Stamp
		want       Stamp
	}{
		"renewal":                 {holder: "a", want: 3 * s},
		"renewal of a Lease":      {holder: "a", resolution: 1, want: 2*s + 1},
		"free":                    {want: 2 * s},
		"other holder":            {holder: "b", want: 2 * s},
		"nominee":                 {holder: "a", notes: nominated, want: 2 * s},
		"free, restored":          {own: 4 * s, want: 5 * s},
		"free, restored, a Lease": {own: 4 * s, resolution: 1, want: 4*s + 1},
	} {
		state := State{Own: Own{Writes: [4]Write{{Renewed: now + x.own}}}, Sight: Sight{Snap: Snapshot{
			Exists: true, Content: record.Readable, Annotations: x.notes,
			Record: Record{Holder: x.holder, Renewed: now + 2*s, Acquired: now + 2*s, Transitions: 3},
		}}}
		if got := (Config{Self: "a", Resolution: x.resolution}).nextStamp(&state, wall*1e9) - now; got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
