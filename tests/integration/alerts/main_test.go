package alerts

import (
	"os"
	"os/exec"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{Services: true}) }

// installed returns the path of a program of Prometheus. Without it the test is skipped, except in CI.
func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("no %s: apt-get install --no-install-recommends prometheus", program)
	default:
		t.Skipf("no %s: apt-get install --no-install-recommends prometheus", program)
	}
	return ""
}
