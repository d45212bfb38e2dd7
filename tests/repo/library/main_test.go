package library

import (
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"
)

const root = "../../.."

func TestMain(m *testing.M) {
	// pkg/features imports istio.io/pkg/log, which starts a worker of OpenCensus.
	view.Stop()
	goleak.VerifyTestMain(m)
}
