package kube

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Pause waits, as between two tries of a request. The error is the cause of the context's end, if that comes first.
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

// Backoff gives, by its Step, the waits between tries that fail in a row: first, and each time twice as long, up to most.
func Backoff(first, most time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Steps: math.MaxInt, Cap: most}
}

// Older reports whether the one resourceVersion of an object was stored before the other. With one that
// is none, such as "", it is false.
func Older(version, than string) bool {
	order, _ := resourceversion.CompareResourceVersion(version, than) // 0 with an error
	return order < 0
}
