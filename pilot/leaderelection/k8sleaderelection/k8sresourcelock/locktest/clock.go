package locktest

import (
	"context"
	"time"
)

// now is the only reading of a clock here. Inside a bubble it is the bubble's.
func now() time.Time { return time.Now() }

// pass waits for d or the end of ctx. An ended ctx passes no time at all.
func pass(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
