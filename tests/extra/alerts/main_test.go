package alerts

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/prometheus"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }

// installed skips a test without the programs of Prometheus. In CI the test fails.
func installed(t *testing.T) {
	t.Helper()
	if prometheus.Installed(t, "prometheus") == "" {
		t.Skip("no prometheus: apt-get install --no-install-recommends prometheus")
	}
}
