package node

import (
	"context"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Start runs a node until the test has ended.
func Start(t testing.TB, options Options) *Node {
	t.Helper()
	n, err := New(options)
	harness.Must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n
}
