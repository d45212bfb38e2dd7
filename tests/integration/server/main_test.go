package server

import (
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// istio.io/pkg/log starts OpenCensus' worker when it is imported.
	view.Stop()
	goleak.VerifyTestMain(m)
}
