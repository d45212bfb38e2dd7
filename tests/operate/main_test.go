package operate

import (
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	view.Stop() // istio.io/pkg/log starts OpenCensus' worker when it is imported
	goleak.VerifyTestMain(m)
}
