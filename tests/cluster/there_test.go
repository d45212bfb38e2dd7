package cluster_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// A package's tests share the cluster that the environment names, and start none.
func TestPackagesMayShareACluster(t *testing.T) {
	c := cluster.Shared(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kubeconfig, passes := range map[string]bool{c.Kubeconfig(): true, "/no/such/file": false} {
		tests := exec.CommandContext(t.Context(), self, "-test.run=^TestAnIdentityIsAPod$", "-test.count=1", "-test.v")
		tests.Env = append(os.Environ(), cluster.ExternalVariable+"="+kubeconfig, "KUBEBUILDER_ASSETS=/no/such/folder")
		out, err := tests.CombinedOutput()
		if (err == nil) != passes || strings.Contains(string(out), "--- PASS: TestAnIdentityIsAPod") != passes || !passes && !strings.Contains(string(out), kubeconfig) {
			t.Errorf("on %s: %v\n%s", kubeconfig, err, out)
		}
	}
}
