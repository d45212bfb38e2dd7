package k8sleaderelection

import (
	"math"
	"sync"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// alarm wakes a loop at a time of CLOCK_BOOTTIME.
type alarm struct {
	ring func()
	at   core.Instant
}

// setBootAlarm wakes a leader at the given time by CLOCK_BOOTTIME also. If the validity ends while the machine sleeps,
// the run functions are stopped as soon as the process runs again. A follower does not need it, because leases expire
// by monotonic time. now is the reading of this pass: with a second reading, a sleep between the two would delay the
// alarm.
func (l *loop) setBootAlarm(now core.ClockReading, wake core.Instant) {
	alarms := l.le.clock.alarms
	switch {
	case alarms == nil:
	case wake == core.Never || l.state.Validity == core.Validity{}:
		alarms.unset(&l.bootAlarm)
	default:
		alarms.set(&l.bootAlarm, now.Boot+int64(now.Mono.Until(wake)))
	}
}

// tick makes the loop read the clocks.
func (l *loop) tick() { l.signal(ticked) }

// jumps detects that a clock advanced while the monotonic clock did not, because the machine slept or the clock
// was set. The first reader of the clocks detects it, for example a gate, and wakes all loops.
type jumps struct {
	boot, wall atomic.Int64 // offset from the monotonic clock at the last reading

	mu    sync.Mutex
	loops map[*loop]struct{}
}

// jump is the minimum change of the offset. The clocks are not read at the same instant.
const jump = 20 * time.Millisecond

func newJumps() *jumps {
	j := &jumps{loops: map[*loop]struct{}{}}
	j.boot.Store(math.MaxInt64) // before the first reading
	j.wall.Store(math.MaxInt64)
	return j
}

// seen reports whether a clock has jumped since the last reading.
func (j *jumps) seen(now core.ClockReading) bool {
	boot := j.ahead(&j.boot, now.Boot-int64(now.Mono))
	wall := j.ahead(&j.wall, now.Wall-int64(now.Mono))
	return boot || wall
}

func (j *jumps) ahead(last *atomic.Int64, now int64) bool {
	before := last.Load()
	switch {
	case now > before && now-before > int64(jump):
		return last.CompareAndSwap(before, now) // true for one reader only
	case now < before:
		last.CompareAndSwap(before, now)
	}
	return false
}

func (j *jumps) notify() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.loops {
		l.tick()
	}
}

func (j *jumps) add(l *loop) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.loops[l] = struct{}{}
}

func (j *jumps) remove(l *loop) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.loops, l)
}
