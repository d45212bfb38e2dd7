package kube

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// Older reports whether the one resourceVersion of an object was stored before the other. With one that
// is none, such as "", it is false.
func Older(version, than string) bool {
	order, _ := resourceversion.CompareResourceVersion(version, than) // 0 with an error
	return order < 0
}
