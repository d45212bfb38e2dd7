package k8sleaderelection

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// ClockReading is one reading of all clocks of the machine.
type ClockReading = core.ClockReading

// Validity is the time until which a leader may write, by each clock of a ClockReading. The zero Validity has ended.
type Validity = core.Validity

// Clock reads the clocks that measure a Validity. NewClock returns a usable Clock; the zero Clock is not usable. A gate
// must use the same Clock as its elector.
type Clock struct {
	epoch    time.Time
	boottime func() int64
	jumps    *jumps
	alarms   bootAlarms // nil: the platform has none
}

// bootAlarms call a function at a time of CLOCK_BOOTTIME, in nanoseconds. Timers of the Go runtime do not run while the
// machine sleeps, so they fire late by the time of the sleep.
type bootAlarms interface {
	set(a *alarm, at int64)
	unset(a *alarm)
}

// NewClock returns a Clock of this machine. boottime returns CLOCK_BOOTTIME in nanoseconds; nil selects the real clock.
// Tests under testing/synctest pass their own function, because synctest replaces only time.Now.
func NewClock(boottime func() int64) *Clock {
	c := &Clock{epoch: time.Now(), boottime: boottime, jumps: newJumps()}
	if boottime == nil {
		c.boottime = readBoottime
		c.alarms = processAlarms()
	}
	return c
}

// mono returns only the monotonic time, without a system call for the other clocks.
func (c *Clock) mono() core.Instant { return core.Instant(time.Since(c.epoch)) + 1 }

// Deadline returns the end of a Validity as a time for context.WithDeadline. Pass the reading at which the Validity was
// checked: with a second reading, a pause between the two would extend the deadline.
// If the Validity has ended, the result is now or earlier.
func (c *Clock) Deadline(now ClockReading, end Validity) time.Time {
	return c.epoch.Add(time.Duration(now.Mono-1) + end.Left(now))
}

// Now reads all clocks. It makes one system call and does not allocate. The first reading after a sleep of the machine
// wakes the electors that use this Clock.
func (c *Clock) Now() ClockReading {
	now := c.read()
	if c.jumps.seen(now) {
		c.jumps.notify()
	}
	return now
}

// read is Now without the wake-up. The loop uses it because the loop is awake.
func (c *Clock) read() core.ClockReading {
	now := time.Now()
	return core.ClockReading{
		Mono: core.Instant(now.Sub(c.epoch)) + 1, // never the zero Instant
		Boot: c.boottime(),
		Wall: now.UnixNano(),
	}
}
