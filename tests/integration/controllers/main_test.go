package controllers

import (
	"context"
	"sync"
	"testing"

	"go.opencensus.io/stats/view"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{})
}

var await = harness.Until

// stopAPIServer kills the API server and returns a function that restarts it. A test that uses it is not parallel.
func stopAPIServer(t *testing.T, c *cluster.Cluster) (bringBack func()) {
	t.Helper()
	harness.Must(t, c.APIServer().Kill())
	bringBack = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience)
		defer cancel()
		if err := c.APIServer().Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(bringBack)
	return bringBack
}
