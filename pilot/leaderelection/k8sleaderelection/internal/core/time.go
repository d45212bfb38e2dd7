package core

import (
	"math"
	"time"
)

// Instant is a reading of this process's monotonic clock, in nanoseconds from an
// origin that only the process knows. It is not comparable with a Stamp, which is
// why the two are different types.
type Instant int64

// Never is later than every instant.
const Never = Instant(math.MaxInt64)

// After is the instant d later. It saturates at Never.
func (i Instant) After(d time.Duration) Instant {
	if d > 0 && i > Never-Instant(d) {
		return Never
	}
	return i + Instant(d)
}

// Until is how long it takes from i to t; negative once t has passed.
func (i Instant) Until(t Instant) time.Duration {
	if t == Never {
		return math.MaxInt64
	}
	return time.Duration(t - i)
}

// Moment is one reading of all the machine's clocks, in nanoseconds. Mono
// measures other holders' leases. Boot goes on while the machine sleeps and
// Wall while it was restored from a snapshot, so one's own cover is measured by
// whichever of the three ran the most. A clock that the platform lacks stays 0.
type ClockReading struct {
	Mono Instant
	Boot int64
	Wall int64
}

// Plus is the end of a cover that lasts d from this moment.
func (m ClockReading) Plus(d time.Duration) Validity {
	return Validity{Mono: m.Mono.After(d), Boot: m.Boot + int64(d), Wall: m.Wall + int64(d)}
}

// Cover is the end of the span in which a leader may act, on each clock. The zero
// Cover has ended.
type Validity ClockReading

// Left is how much of the cover remains at now; zero or less means it has ended. A
// clock that says less counts: it is the one that noticed a pause.
func (c Validity) Left(now ClockReading) time.Duration {
	if c == (Validity{}) {
		return 0
	}
	return time.Duration(min(int64(c.Mono-now.Mono), c.Boot-now.Boot, c.Wall-now.Wall))
}

// Stamp is a time that some writer put into a record, in microseconds since 1970 by
// that writer's clock. It is compared for equality only. 0 means none was written.
type Stamp int64

// stampSecond is the granularity of istiod's records: times in seconds.
const stampSecond = Stamp(time.Second / time.Microsecond)

// maxStampLead is how far a recorded stamp may be ahead of the wall clock and still
// be stepped; a wilder one is replaced, which changes the bytes as well.
const maxStampLead = 24 * 60 * 60 * stampSecond

// nextStamp is a stamp for a write over a record that carries recorded: the wall
// clock in whole seconds, but different from what is there even when the wall clock
// stands still or has been set back. A write that changes no byte would be no write.
func nextStamp(recorded Stamp, wall int64) Stamp {
	now := Stamp(wall/int64(time.Second)) * stampSecond
	if recorded < now || recorded > now+maxStampLead {
		return now
	}
	return recorded - recorded%stampSecond + stampSecond
}
