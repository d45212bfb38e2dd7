package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Time is true time in nanoseconds since the run began. No process can read it.
type Time int64

func (t Time) add(d time.Duration) Time { return t + Time(d) }

func (t Time) since(u Time) time.Duration { return time.Duration(t - u) }

func (t Time) String() string { return time.Duration(t).String() }

// clocks are the clocks of one machine. The monotonic clock stops while the machine is suspended, the boot
// clock continues, and the wall clock can be set.
type clocks struct {
	rate     float64 // of the monotonic and the boot clock
	monoZero int64
	bootZero int64
	hasBoot  bool
	slept    int64 // time that the monotonic clock did not count
	asleepAt Time  // -1: awake
	wallZero int64
	frozen   bool
	frozenAt int64
}

func (c *clocks) ran(t Time) int64 { return int64(float64(t) * c.rate) }

func (c *clocks) mono(t Time) core.Instant {
	if c.asleepAt >= 0 {
		t = c.asleepAt
	}
	return core.Instant(c.monoZero + c.ran(t) - c.slept)
}

func (c *clocks) wall(t Time) int64 {
	if c.frozen {
		return c.frozenAt
	}
	return c.wallZero + int64(t)
}

func (c *clocks) moment(t Time) core.ClockReading {
	m := core.ClockReading{Mono: c.mono(t), Wall: c.wall(t)}
	if c.hasBoot {
		m.Boot = c.bootZero + c.ran(t)
	}
	return m
}

// when returns the first true time at which the monotonic clock reaches i.
func (c *clocks) when(i core.Instant) Time {
	t := Time(float64(int64(i)-c.monoZero+c.slept) / c.rate)
	for c.mono(t) < i {
		t++
	}
	return t
}

func (c *clocks) suspend(now Time) { c.asleepAt = now }

func (c *clocks) wake(now Time) {
	c.slept += c.ran(now) - c.ran(c.asleepAt)
	c.asleepAt = -1
}

func (c *clocks) freezeWall(now Time) { c.frozenAt, c.frozen = c.wall(now), true }

// thawWall restarts the wall clock where it stopped, or at the correct time.
func (c *clocks) thawWall(now Time, right bool) {
	if c.frozen && !right {
		c.wallZero = c.frozenAt - int64(now)
	}
	c.frozen = false
}

// left returns the remaining time of a gate. The wall clock counts only without a boot clock, because it can
// be set back.
func (c *clocks) left(validity core.Validity, now Time) time.Duration {
	m := c.moment(now)
	if c.hasBoot {
		m.Wall, validity.Wall = 0, int64(time.Hour)
	}
	return validity.Left(m)
}
