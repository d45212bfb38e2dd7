package k8sleaderelection

import (
	"math"
	"sync"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// alarm is when a loop wants to be woken by CLOCK_BOOTTIME.
type alarm struct {
	ring func()
	at   core.Instant
}

// setBootAlarm has the loop woken at that time by CLOCK_BOOTTIME as well, if it has a cover:
// that ends while the machine sleeps, and run functions have to be told as soon as the
// process runs again. A follower waits for another's lease, which runs by monotonic time.
// The alarm is counted from now, the reading that the core went by: were it counted from a
// second one, the machine could sleep between the two, and the alarm would wait once more.
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

// tick makes the loop look at the clocks.
func (l *loop) tick() { l.signal(ticked) }

// jumps notices when a clock has gone on while the monotonic one stood still: the machine
// has slept, or was set. Whoever reads the clocks first finds out, such as a gate that
// checks a write, and all loops that use this clock are woken.
type jumps struct {
	boot, wall atomic.Int64 // how far ahead of the monotonic clock they were

	mu    sync.Mutex
	loops map[*loop]struct{}
}

// jump is by how much a clock has to have gone ahead. Two clocks are not read at the same
// time, and a busy machine may do something else in between.
const jump = 20 * time.Millisecond

func newJumps() *jumps {
	j := &jumps{loops: map[*loop]struct{}{}}
	j.boot.Store(math.MaxInt64) // nothing is ahead of what was not read yet
	j.wall.Store(math.MaxInt64)
	return j
}

// seen reports whether one of the clocks has jumped ahead since the last reading.
func (j *jumps) seen(now core.ClockReading) bool {
	boot, wall := j.ahead(&j.boot, now.Boot-int64(now.Mono)), j.ahead(&j.wall, now.Wall-int64(now.Mono))
	return boot || wall
}

func (j *jumps) ahead(last *atomic.Int64, now int64) bool {
	before := last.Load()
	switch {
	case now > before && now-before > int64(jump):
		return last.CompareAndSwap(before, now) // one reader tells
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
