package library

import (
	"testing"
	"time"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

const root = "../../.."

// patience bounds every wait of these tests; none is expected to come near.
const patience = time.Minute

func TestMain(m *testing.M) {
	// pkg/features brings istio.io/pkg/log, and that OpenCensus' worker.
	view.Stop()
	goleak.VerifyTestMain(m)
}

// await looks again and again until something holds.
var await = waits.Until
