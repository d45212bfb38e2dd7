package library

import (
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

const root = "../../.."

// patience is the limit of each wait.
const patience = waits.Bound

func TestMain(m *testing.M) {
	// pkg/features imports istio.io/pkg/log, which starts a worker of OpenCensus.
	view.Stop()
	goleak.VerifyTestMain(m)
}

// await polls until the condition holds.
var await = waits.Until
