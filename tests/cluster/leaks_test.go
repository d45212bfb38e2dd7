package cluster_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// leakVariable makes the test program leak a goroutine.
const leakVariable = "CLUSTER_TEST_LEAK"

// A package with a leaked goroutine fails, even if its tests pass.
func TestMain_FailsOnLeak(t *testing.T) {
	if os.Getenv(leakVariable) != "" {
		go func() { select {} }()
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	cmd.Env = slices.DeleteFunc(append(os.Environ(), leakVariable+"=1"), func(entry string) bool {
		return strings.HasPrefix(entry, cluster.ExternalVariable+"=")
	})
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "goroutine") || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
