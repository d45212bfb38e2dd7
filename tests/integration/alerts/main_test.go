package alerts

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/prometheus"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{}) }

// installed returns the path of a program of Prometheus. Without it the test is skipped, except in CI.
func installed(t *testing.T, program string) string {
	t.Helper()
	path := prometheus.Installed(t, program)
	if path == "" {
		t.Skipf("no %s: apt-get install --no-install-recommends prometheus", program)
	}
	return path
}
