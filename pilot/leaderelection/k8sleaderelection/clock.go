package k8sleaderelection

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Moment is one reading of all the machine's clocks, in nanoseconds:
//
//	Mono Instant // the monotonic clock, from an origin of the process; an int64
//	Boot int64   // CLOCK_BOOTTIME, which goes on while the machine sleeps
//	Wall int64   // since 1970
//
// A clock that the platform lacks stays 0. Plus(d) is the Cover that lasts d from the Moment.
type Moment = core.ClockReading

// Cover is the end of the time in which a leader may act, on each clock. Its fields are those of Moment: Mono, Boot and
// Wall. Left(now) is the time that remains of it at a Moment, by the clock on which the least remains; at zero or less it
// has ended. The zero Cover has ended.
type Cover = core.Validity

// Clock reads the clocks that a cover is measured by. The zero Clock is not usable;
// NewClock makes one. A gate has to ask the same Clock as its elector.
type Clock struct {
	epoch    time.Time
	boottime func() int64
	wall     func() int64 // nil: the real one
	jumps    *jumps
	// alarms wake by CLOCK_BOOTTIME; nil: there are none here.
	alarms bootAlarms
}

// bootAlarms ring when CLOCK_BOOTTIME is at that many nanoseconds: timers of the Go runtime
// stand still while the machine sleeps, and so fire late by as much.
type bootAlarms interface {
	set(a *alarm, at int64)
	unset(a *alarm)
}

// NewClock returns a clock of this machine. boottime reads CLOCK_BOOTTIME in
// nanoseconds, which goes on while the machine sleeps; nil means the real one. Tests
// in a testing/synctest bubble give their own, because only time.Now is the bubble's.
func NewClock(boottime func() int64) *Clock {
	c := &Clock{epoch: time.Now(), boottime: boottime, jumps: newJumps()}
	if boottime == nil {
		c.boottime, c.alarms = readBoottime, processAlarms()
	}
	return c
}

// WithWall returns a clock like c whose wall clock, in nanoseconds since 1970, is another:
// for tests of what happens when it stands still or is set.
func (c *Clock) WithWall(wall func() int64) *Clock {
	other := *c
	other.wall = wall
	return &other
}

// mono is Now().Mono, where no other clock is needed.
func (c *Clock) mono() core.Instant { return core.Instant(time.Since(c.epoch)) + 1 }

// Deadline returns the end of a cover as a time for context.WithDeadline: now plus
// end.Left(now). Give it the Moment by which the cover was found open. A deadline counted from
// a second reading would be later by as much as the process was stopped between the two. Of a
// Cover that has ended it is now or earlier.
func (c *Clock) Deadline(now Moment, end Cover) time.Time {
	return c.epoch.Add(time.Duration(now.Mono-1) + end.Left(now))
}

// Now reads all clocks. It costs one system call and allocates nothing. The first reading
// after the machine has slept wakes the electors that go by this clock.
func (c *Clock) Now() Moment {
	now := c.read()
	if c.jumps.seen(now) {
		c.jumps.notify()
	}
	return now
}

// read is Now for a loop, which is running and needs no wake-up.
func (c *Clock) read() Moment {
	now := time.Now()
	wall := now.UnixNano()
	if c.wall != nil {
		wall = c.wall()
	}
	return Moment{
		// The origin lies a nanosecond back, so that no reading is the zero Instant.
		Mono: core.Instant(now.Sub(c.epoch)) + 1,
		Boot: c.boottime(),
		Wall: wall,
	}
}
