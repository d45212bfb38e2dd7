package node

import "time"

// backoff returns the delays before restarts: none, first, twice as long, and so on.
type backoff struct {
	first, most time.Duration
	last        time.Duration
	begun       bool
}

// next returns the delay before the next restart.
func (b *backoff) next() time.Duration {
	switch {
	case !b.begun:
		b.begun = true
		return 0
	case b.last == 0:
		b.last = b.first
	default:
		b.last = min(2*b.last, b.most)
	}
	return b.last
}

// reset starts again without a delay.
func (b *backoff) reset() { b.last, b.begun = 0, false }
