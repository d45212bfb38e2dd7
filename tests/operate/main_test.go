package operate

import (
	"flag"
	"testing"

	"go.opencensus.io/stats/view"
	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table in docs/tools.md")

func TestMain(m *testing.M) {
	view.Stop() // istio.io/pkg/log starts OpenCensus' worker when it is imported
	goleak.VerifyTestMain(m)
}
