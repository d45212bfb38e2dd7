package ctl

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"incumbent.dev/incumbent/tests/cluster"
)

// kubectl runs this program as its plugin, when it finds it under that name.
const plugin = "kubectl-election"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == plugin {
		p := &Program{IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}}
		os.Exit(p.Run(context.Background(), os.Args[1:]))
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}
