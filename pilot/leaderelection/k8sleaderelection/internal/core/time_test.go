package core

import (
	"math"
	"testing"
	"time"
)

// The clock that advanced most counts.
func TestCoverLeft(t *testing.T) {
	end := testNow.Plus(10 * time.Second)
	for name, c := range map[string]struct {
		now  ClockReading
		left time.Duration
	}{
		"equal":         {moment(4 * time.Second), 6 * time.Second},
		"a suspend":     {ClockReading{Mono: testNow.Mono, Boot: testNow.Boot + 9e9, Wall: testNow.Wall + 3e9}, time.Second},
		"a restored VM": {ClockReading{Mono: testNow.Mono, Boot: testNow.Boot + 3e9, Wall: testNow.Wall + 11e9}, -time.Second},
		"mono ahead":    {ClockReading{Mono: testNow.Mono.After(8 * time.Second), Boot: testNow.Boot, Wall: testNow.Wall}, 2 * time.Second},
	} {
		if got := end.Left(c.now); got != c.left {
			t.Errorf("%s: %v left", name, got)
		}
	}
	if got := (Validity{}).Left(ClockReading{Mono: -5, Boot: -5, Wall: -5}); got != 0 {
		t.Errorf("no cover: %v left", got)
	}
	if Never.Until(Never) != math.MaxInt64 || testNow.Mono.Until(Never) != math.MaxInt64 || testNow.Mono.After(math.MaxInt64) != Never ||
		(Never-5).After(5) != Never || (Never-5).After(6) != Never || (Never-5).After(4) != Never-1 || Never.After(0) != Never || Instant(-5).After(-3) != -8 {
		t.Error("Never is not saturated")
	}
	if got := (Instant(5)).Until(3); got != -2 {
		t.Errorf("two nanoseconds ago: %v", got)
	}
}

// A stamp is the wall clock in whole seconds, or one second after the recorded stamp if that is later. A stamp more than a day ahead is replaced.
func TestNextStamp(t *testing.T) {
	const wall = 1_780_000_000
	now := Stamp(wall) * stampSecond
	for recorded, want := range map[Stamp]Stamp{
		0: now, now - stampSecond: now, now: now + stampSecond, now + 1: now + stampSecond,
		now + stampSecond - 1: now + stampSecond, now + 5*stampSecond: now + 6*stampSecond,
		now + maxStampLead: now + maxStampLead + stampSecond, now + maxStampLead + 1: now,
	} {
		if got := nextStamp(recorded, wall*1e9+999); got != want {
			t.Errorf("over %d: %d, want %d", recorded-now, got-now, want-now)
		}
	}
	s := State{Own: Own{Stamps: [4]Stamp{now + 3*stampSecond}}, Snap: Snapshot{Record: Record{Renewed: now}}}
	if got := s.nextStamp(wall * 1e9); got != now+4*stampSecond {
		t.Errorf("own stamp used again: %d", got-now)
	}
	s.Snap.Record.Renewed = now + 7*stampSecond
	if got := s.nextStamp(wall * 1e9); got != now+8*stampSecond {
		t.Errorf("recorded stamp used again: %d", got-now)
	}
}
