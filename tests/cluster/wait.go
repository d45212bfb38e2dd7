package cluster

import (
	"context"
	"fmt"
	"time"

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
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		askCtx, cancel := context.WithTimeout(ctx, askTimeout)
		err := ask(askCtx)
		cancel()
		if err == nil {
			return nil
		}
		if failure := server.Failure(); failure != nil {
			return fmt.Errorf("waiting until %s: %w", what, failure)
		}
		select {
		case <-ticker.C:
		case <-server.Done():
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w (last error: %w); %s", what, context.Cause(ctx), err, server.Tail())
		}
	}
}
