package core

import (
	"math"
	"time"
)

// Instant is a reading of the monotonic clock of this process in nanoseconds. It has another type than Stamp
// because the two are not comparable.
type Instant int64

// Never is later than every instant.
const Never = Instant(math.MaxInt64)

// After returns i + d. It saturates at Never.
func (i Instant) After(d time.Duration) Instant {
	if d > 0 && i > Never-Instant(d) {
		return Never
	}
	return i + Instant(d)
}

// Until returns the time from i to t. It is negative if t is earlier.
func (i Instant) Until(t Instant) time.Duration {
	if t == Never {
		return math.MaxInt64
	}
	return time.Duration(t - i)
}

// ClockReading is one reading of all clocks of the machine, in nanoseconds. Mono measures the leases of other
// holders. Boot also counts suspend. Wall also counts the time until a restored VM continues. The own validity
// ends by the clock that advanced most. A clock that the platform does not have stays 0.
type ClockReading struct {
	Mono Instant
	Boot int64
	Wall int64
}

// Plus returns the end of a validity of d from m.
func (m ClockReading) Plus(d time.Duration) Validity {
	return Validity{Mono: m.Mono.After(d), Boot: m.Boot + int64(d), Wall: m.Wall + int64(d)}
}

// Validity is the time until which a leader may act, on each clock. The zero value has ended.
type Validity ClockReading

// Left returns the remaining time at now. The clock with the least time left counts, because it measured a
// pause.
func (c Validity) Left(now ClockReading) time.Duration {
	if c == (Validity{}) {
		return 0
	}
	return time.Duration(min(int64(c.Mono-now.Mono), c.Boot-now.Boot, c.Wall-now.Wall))
}
