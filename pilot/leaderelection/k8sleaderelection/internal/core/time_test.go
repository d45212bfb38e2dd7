package core

import (
	"testing"
)

// A stamp is the wall clock in whole seconds, but at least one step above the recorded stamp. A stamp more than a day
// ahead is replaced.
func TestNextStamp(t *testing.T) {
	const wall = 1_780_000_000
	const s = stampSecond
	for recorded, want := range map[Stamp]struct{ none, micro, second Stamp }{ // all relative to the wall clock
		-s: {0, 0, 0}, -1: {0, 0, 0}, 0: {0, 1, s}, 1: {s, 2, s}, s - 1: {s, s, s}, 5 * s: {5 * s, 5*s + 1, 6 * s},
		maxStampLead: {maxStampLead, maxStampLead + 1, maxStampLead + s}, maxStampLead + 1: {0, 0, 0},
	} {
		now := Stamp(wall) * s
		for step, want := range map[Stamp]Stamp{0: want.none, 1: want.micro, s: want.second} {
			if got := nextStamp(now+recorded, wall*1e9+999, step) - now; got != want {
				t.Errorf("%d, step %d: %d, want %d", recorded, step, got, want)
			}
		}
	}
	if got := nextStamp(0, wall*1e9, s); got != wall*s {
		t.Errorf("no record: %d", got)
	}
}

// Only a write over the own record needs a greater stamp. After a restore, an own stamp above the recorded one is not used again.
func TestConfigNextStamp(t *testing.T) {
	const wall = 1_780_000_000
	const s, now = stampSecond, Stamp(wall) * stampSecond
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
		state := State{Own: Own{Stamps: [4]Stamp{now + x.own}}, Snap: Snapshot{
			Exists: true, Content: Readable, Annotations: x.notes,
			Record: Record{Holder: x.holder, Renewed: now + 2*s, Acquired: now + 2*s, Transitions: 3},
		}}
		if got := (Config{Self: "a", Resolution: x.resolution}).nextStamp(state, wall*1e9) - now; got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
