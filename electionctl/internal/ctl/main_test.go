package ctl

import (
	"os"
	"path/filepath"
	"testing"

	"incumbent.dev/incumbent/electionctl/internal/run"
	"incumbent.dev/incumbent/tests/cluster"
)

// plugin is the name under which the test binary acts as the kubectl plugin.
const plugin = "kubectl-election"

func TestMain(m *testing.M) {
	run.Supervise()
	if filepath.Base(os.Args[0]) == plugin {
		os.Exit(Main(os.Args[1:]))
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
