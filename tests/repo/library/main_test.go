package library

import (
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const root = "../../.."

// patience is the limit of each wait.
const patience = harness.Patience

func TestMain(m *testing.M) {
	// pkg/features imports istio.io/pkg/log, which starts a worker of OpenCensus.
	view.Stop()
	goleak.VerifyTestMain(m)
}

// await polls until the condition holds.
var await = harness.Until
