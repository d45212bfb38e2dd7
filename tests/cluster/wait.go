package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

const (
	// pollInterval is the interval of readiness checks.
	pollInterval = 20 * time.Millisecond
	// askTimeout limits one check. It is long, because a busy server takes seconds.
	askTimeout = 30 * time.Second
)

// await checks until there is no error. If ctx or the server ends, it returns the last error and the end of the
// server's log.
func await(ctx context.Context, what string, server *process.Process, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if last = ask(ctx); last == nil {
			return true, nil
		}
		return false, server.Failure()
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("wait until %s: %w (last error: %w); %s", what, context.Cause(ctx), last, server.Tail())
	}
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}
