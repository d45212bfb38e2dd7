package ctl

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"incumbent.dev/incumbent/tests/cluster"
)

// The test binary acts as the kubectl plugin if it is started under its name.
const plugin = "kubectl-election"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == plugin {
		p := &Program{IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}}
		os.Exit(p.Run(context.Background(), os.Args[1:]))
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
