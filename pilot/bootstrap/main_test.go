package bootstrap

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// OpenCensus, which istio.io/pkg/log brings, starts one when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
