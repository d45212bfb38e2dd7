package k8sleaderelection

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// ClockReading is one reading of all clocks of the machine, in nanoseconds. A clock that the platform does not have
// stays 0.
type ClockReading struct {
	// Mono is the monotonic clock. It counts from the creation of the Clock.
	Mono int64
	// Boot is CLOCK_BOOTTIME, which also counts while the machine sleeps.
	Boot int64
	// Wall is the wall clock, in nanoseconds since 1970.
	Wall int64
}

// Plus returns the Validity that ends d after r, by each clock.
func (r ClockReading) Plus(d time.Duration) Validity {
	return Validity{Mono: r.Mono + int64(d), Boot: r.Boot + int64(d), Wall: r.Wall + int64(d)}
}

// Validity is the time until which a leader may write, by each clock of a ClockReading. The zero Validity has ended.
type Validity struct {
	// Mono, Boot and Wall are the readings of the three clocks at the end.
	Mono, Boot, Wall int64
}

// Left returns how much of the Validity remains at now. The clock with the least time left counts. At zero or less
// the Validity has ended.
func (v Validity) Left(now ClockReading) time.Duration { return v.core().Left(now.core()) }

func (r ClockReading) core() core.ClockReading {
	return core.ClockReading{Mono: core.Instant(r.Mono), Boot: r.Boot, Wall: r.Wall}
}

func (v Validity) core() core.Validity { return core.Validity(ClockReading(v).core()) }

func publicReading(r core.ClockReading) ClockReading {
	return ClockReading{Mono: int64(r.Mono), Boot: r.Boot, Wall: r.Wall}
}

func publicValidity(v core.Validity) Validity { return Validity(publicReading(core.ClockReading(v))) }

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
	return publicReading(now)
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
