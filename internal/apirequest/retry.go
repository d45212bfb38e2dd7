package apirequest

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Pause waits for d. If ctx ends first, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backoff returns a back-off whose Step starts with first and doubles up to most.
func Backoff(first, most time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Steps: math.MaxInt, Cap: most}
}
