package ctl

import (
	"os"
	"path/filepath"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// Names under which the test binary acts as the kubectl plugin and as a candidate.
const (
	plugin    = "kubectl-election"
	candidate = "candidate"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case plugin:
		os.Exit(Main(os.Args[1:]))
	case candidate:
		os.Exit(lead(os.Args[1:]))
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
