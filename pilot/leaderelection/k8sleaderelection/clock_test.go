package k8sleaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

func TestClockDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clock := newSuspender()
		<-time.After(time.Minute)
		now := clock.Now()
		end := Validity{Mono: now.Mono.After(10 * time.Second), Boot: now.Boot + int64(9*time.Second), Wall: now.Wall + int64(11*time.Second)}
		want := time.Now().Add(9 * time.Second)
		<-time.After(time.Hour) // a pause does not extend the deadline
		if got := clock.Deadline(now, end); !got.Equal(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if left := now.Plus(time.Minute).Left(clock.Now()); left != time.Minute-time.Hour {
			t.Errorf("left %v", left)
		}
	})
}

// Each step advances the clocks.
func TestJumpsSeen(t *testing.T) {
	type step struct {
		mono, boot, wall time.Duration
		want             bool
	}
	for name, steps := range map[string][]step{
		"no jump":               {{time.Hour, time.Hour, time.Hour, false}, {time.Second, time.Second, time.Second, false}},
		"suspend":               {{time.Second, time.Hour, time.Hour, true}, {time.Second, time.Second, time.Second, false}},
		"boot time only":        {{time.Second, time.Hour, time.Second, true}, {0, 0, 0, false}},
		"wall clock only":       {{time.Second, time.Second, time.Hour, true}, {0, 0, 0, false}},
		"read at another time":  {{0, jump, jump, false}, {0, jump + 1, 0, true}, {0, 0, jump + 1, true}},
		"slow drift":            {{0, jump, 0, false}, {0, 1, 0, true}, {0, jump, 0, false}},
		"wall clock set back":   {{0, 0, -time.Hour, false}, {0, 0, time.Minute, true}},
		"platform without boot": {{time.Hour, 0, time.Hour, false}, {time.Hour, 0, 2 * time.Hour, true}},
	} {
		for start, at := range map[string]core.ClockReading{"zero": {Mono: 1}, "now": {Mono: 1, Boot: 1 << 50, Wall: 1 << 60}, "behind": {Mono: 1 << 50}} {
			j := newJumps()
			if j.seen(at) {
				t.Errorf("%s, %s: the first reading is a jump", name, start)
			}
			for i, s := range steps {
				at.Mono += core.Instant(s.mono)
				at.Boot += int64(s.boot)
				at.Wall += int64(s.wall)
				if got := j.seen(at); got != s.want {
					t.Errorf("%s, %s: step %d: %v", name, start, i, got)
				}
			}
		}
	}
}
