package record

import (
	"testing"
	"time"
)

// A stamp is the wall clock in whole seconds, but at least one step above the recorded stamp. A stamp more than a day
// ahead is replaced.
func TestStampNext(t *testing.T) {
	const wall = 1_780_000_000
	const s = Second
	for recorded, want := range map[Stamp]struct{ none, micro, second Stamp }{ // all relative to the wall clock
		-s: {0, 0, 0}, -1: {0, 0, 0}, 0: {0, 1, s}, 1: {s, 2, s}, s - 1: {s, s, s}, 5 * s: {5 * s, 5*s + 1, 6 * s},
		maxLead: {maxLead, maxLead + 1, maxLead + s}, maxLead + 1: {0, 0, 0},
	} {
		now := Stamp(wall) * s
		for step, want := range map[Stamp]Stamp{0: want.none, 1: want.micro, s: want.second} {
			if got := (now+recorded).Next(wall*1e9+999, step) - now; got != want {
				t.Errorf("%d, step %d: %d, want %d", recorded, step, got, want)
			}
		}
	}
	if got := Stamp(0).Next(wall*1e9, s); got != wall*s {
		t.Errorf("no record: %d", got)
	}
}

func TestStampOf(t *testing.T) {
	if StampOf(time.Time{}) != 0 || !Stamp(0).Time().IsZero() {
		t.Error("the zero time is not 0")
	}
	now := time.Now().Truncate(time.Second).UTC()
	if got := StampOf(now).Time(); got != now {
		t.Errorf("%v became %v", now, got)
	}
}
