package library

import (
	"context"
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"
)

const root = "../.."

// patience bounds every wait of these tests; none is expected to come near.
const patience = time.Minute

func TestMain(m *testing.M) {
	// pkg/features brings istio.io/pkg/log, and that OpenCensus' worker.
	view.Stop()
	goleak.VerifyTestMain(m)
}

// await looks again and again until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		case <-ticker.C:
		}
	}
}
