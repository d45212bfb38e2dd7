package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	bundleName = "istio-ca-root-cert"
	revision   = "stable"
)

// build compiles pilot and returns its path.
func build(b testing.TB) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "pilot")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "incumbent.dev/incumbent/cmd/pilot").CombinedOutput(); err != nil {
		b.Fatalf("building pilot: %v\n%s", err, out)
	}
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
	config := bootstrap.Config{Revision: revision}
	rights := bootstrap.Rights(config)
	identity := w.cluster.Identity(w.TB, cluster.IdentityOptions{
		Namespace: w.home, PodName: name, ServiceAccount: "pilot",
		Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
	})
	folder := w.TempDir()
	access := filepath.Join(folder, "kubeconfig")
	if err := cluster.WriteKubeconfig(access, identity, ""); err != nil {
		w.Fatal(err)
	}
	return &pilot{b: w.TB, Process: harness.Start(w.TB, name, nil, w.program, "server", "--kubeconfig="+access, "--namespace="+w.home, "--identity="+name, "--revision="+revision,
		"--address=127.0.0.1:0", "--ca-bundle="+w.bundle, "--lock=lease", "--pprof", fmt.Sprintf("--kube-qps=%g", qps))}
}

// log returns the output of the server.
func (p *pilot) log() string { return p.Out.String() + p.Errors.String() }

var address = regexp.MustCompile(`address"?[=: ]"?(127[0-9.]+:[0-9]+)`)

// page returns a page of the server.
func (p *pilot) page(path string) string {
	p.b.Helper()
	found := address.FindStringSubmatch(p.log())
	if found == nil {
		return ""
	}
	_, text := harness.Page(p.b, found[1], path)
	return text
}

// memory has the live heap and the resident set in MiB.
type memory struct{ heap, resident float64 }

var alive = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// memory measures after garbage collections.
func (p *pilot) memory() memory {
	p.b.Helper()
	const mib = 1 << 20
	p.page("/debug/pprof/heap?gc=1") // the next collection frees objects with finalizers
	found := alive.FindStringSubmatch(p.page("/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		p.b.Fatal("no HeapAlloc in the heap profile")
	}
	heap, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		p.b.Fatal(err)
	}
	servers, err := harness.Children(p.PID()) // the process itself is the witness
	if err != nil || len(servers) != 1 {
		p.b.Fatalf("the witness has the children %v: %v", servers, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", servers[0]))
	if err != nil {
		p.b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				p.b.Fatal(err)
			}
			return memory{heap / mib, kib / 1024}
		}
	}
	p.b.Fatal("no VmRSS in the status")
	return memory{}
}
