package ctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestKubectlPlugin(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("../../kubectl_complete-election")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, target := range map[string]string{plugin: program, "kubectl_complete-election": script, "kubectl": e.cluster.Kubectl()} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), e.cluster.Kubectl(), args...)
		cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "KUBECONFIG="+e.cluster.Kubeconfig(), "HOME="+folder)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return e.steady(string(out))
	}
	golden.File(t, "testdata/plugin.txt", kubectl("election", "list", "-n", e.namespace))
	if help := kubectl("election", "explain", "--help"); !strings.Contains(help, "kubectl election explain ELECTION") {
		t.Error(help)
	}
	harness.Until(t, "completion of explain", func() bool { // it offers no words if the API server is slow
		return strings.Contains(kubectl("__complete", "election", "-n", e.namespace, "explain", "istio"), "istio-leader\n")
	})
}
