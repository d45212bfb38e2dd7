package k8sleaderelection

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Each step is the time that the clocks have gained since the one before.
func TestWhatCountsAsAJump(t *testing.T) {
	type step struct {
		mono, boot, wall time.Duration
		want             bool
	}
	for name, steps := range map[string][]step{
		"time that passes":         {{time.Hour, time.Hour, time.Hour, false}, {time.Second, time.Second, time.Second, false}},
		"a sleep":                  {{time.Second, time.Hour, time.Hour, true}, {time.Second, time.Second, time.Second, false}},
		"one that boot time tells": {{time.Second, time.Hour, time.Second, true}, {0, 0, 0, false}},
		"one that the wall tells":  {{time.Second, time.Second, time.Hour, true}, {0, 0, 0, false}},
		"a clock read later":       {{0, jump, jump, false}, {0, jump + 1, 0, true}, {0, 0, jump + 1, true}},
		"read later time after time": {
			{0, jump, 0, false}, {0, 1, 0, true}, {0, jump, 0, false},
		},
		"a wall clock set back": {{0, 0, -time.Hour, false}, {0, 0, time.Minute, true}},
		"without boot time":     {{time.Hour, 0, time.Hour, false}, {time.Hour, 0, 2 * time.Hour, true}},
	} {
		for start, at := range map[string]core.ClockReading{"from zero": {Mono: 1}, "from now": {Mono: 1, Boot: 1 << 50, Wall: 1 << 60}, "behind": {Mono: 1 << 50}} {
			j := newJumps()
			if j.seen(at) {
				t.Errorf("%s, %s: the first reading is a jump", name, start)
			}
			for i, s := range steps {
				at.Mono += core.Instant(s.mono)
				at.Boot += int64(s.boot)
				at.Wall += int64(s.wall)
				if got := j.seen(at); got != s.want {
					t.Errorf("%s, %s: step %d is a jump: %v", name, start, i, got)
				}
			}
		}
	}
}

func TestALoopThatHasEndedHearsOfNoJump(t *testing.T) {
	j := newJumps()
	l, other := &loop{inputs: newInputs()}, &loop{inputs: newInputs()}
	j.add(l)
	j.add(other)
	j.remove(l)
	j.notify()
	if l.signals != 0 || other.signals != ticked || len(j.loops) != 1 {
		t.Errorf("told %d and %d, %d are known", l.signals, other.signals, len(j.loops))
	}
}
