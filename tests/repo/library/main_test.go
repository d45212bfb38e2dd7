package library

import (
	"os"
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
	// Constructors with istiod's signature read them. A leader keeps its lock on a slow machine too.
	for name, value := range map[string]string{"LEASE_DURATION": "60s", "RENEW_DEADLINE": "40s", "RETRY_PERIOD": "1s"} {
		if err := os.Setenv("LEADER_ELECTION_"+name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// await polls until the condition holds.
var await = harness.Until
