package locktest

import (
	"context"
	"time"
)

// now reads the clock. All code of this package uses it.
func now() time.Time { return time.Now() }

// pass waits until d has passed or ctx is done. If ctx is done already, it returns immediately.
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
