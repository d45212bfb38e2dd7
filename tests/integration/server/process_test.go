package server

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

const (
	bundleName = "istio-ca-root-cert"
	revision   = "stable"
)

// build compiles pilot and returns its path.
func build(b testing.TB) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "pilot")
	harness.Must(b, example.Build(b.Context(), ".", "incumbent.dev/incumbent/cmd/pilot", path))
	return path
}

// pilot is a server process.
type pilot struct {
	*harness.Process
	b testing.TB
}

// pilot starts a server and stops it when the benchmark ends.
func (w *world) pilot(name string, qps float64) *pilot {
	w.Helper()
	identity := servers.Identity(w.TB, w.cluster, bootstrap.Config{Config: leaderelection.Config{Namespace: w.home, Revision: revision}}, name, "pilot")
	access := filepath.Join(w.TempDir(), "kubeconfig")
	harness.Must(w, cluster.WriteKubeconfig(access, identity, ""))
	return &pilot{b: w.TB, Process: harness.Start(w.TB, name, nil, w.program, "server", "--kubeconfig="+access, "--namespace="+w.home, "--identity="+name, "--revision="+revision,
		"--address=127.0.0.1:0", "--ca-bundle="+w.bundle, "--lock=lease", "--pprof", fmt.Sprintf("--kube-qps=%g", qps))}
}

var address = regexp.MustCompile(`address"?[=: ]"?(127[0-9.]+:[0-9]+)`)

// page returns a page of the server.
func (p *pilot) page(path string) string {
	p.b.Helper()
	found := address.FindStringSubmatch(p.Out.String())
	if found == nil {
		return ""
	}
	_, text := harness.Page(p.b, found[1], path)
	return text
}

var alive = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heap returns the live heap in MiB.
func (p *pilot) heap() float64 {
	p.b.Helper()
	p.page("/debug/pprof/heap?gc=1") // the next collection frees objects with finalizers
	found := alive.FindStringSubmatch(p.page("/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		p.b.Fatal("no HeapAlloc in the heap profile")
	}
	heap, err := strconv.ParseFloat(found[1], 64)
	harness.Must(p.b, err)
	return heap / (1 << 20)
}
