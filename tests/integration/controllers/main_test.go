package controllers

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	"k8s.io/apimachinery/pkg/util/wait"

	"incumbent.dev/incumbent/tests/cluster"
)

// patience limits each wait. After an outage of the API server, client-go can back off for a minute.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	cluster.Main(m, cluster.Options{})
}

// await waits until a function returns true.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// stopAPIServer kills the API server and returns a function that restarts it. A test that uses it is not parallel.
func stopAPIServer(t *testing.T, c *cluster.Cluster) (bringBack func()) {
	t.Helper()
	if err := c.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	bringBack = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := c.APIServer().Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(bringBack)
	return bringBack
}
