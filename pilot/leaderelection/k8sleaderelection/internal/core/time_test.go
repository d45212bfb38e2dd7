package core

import (
	"testing"

	"incumbent.dev/incumbent/internal/record"
)

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
		state := State{Own: Own{Stamps: [4]Stamp{now + x.own}}, Snap: Snapshot{
			Exists: true, Content: record.Readable, Annotations: x.notes,
			Record: Record{Holder: x.holder, Renewed: now + 2*s, Acquired: now + 2*s, Transitions: 3},
		}}
		if got := (Config{Self: "a", Resolution: x.resolution}).nextStamp(state, wall*1e9) - now; got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}
