package k8sleaderelection_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// stuckEnv makes this test binary the process that is to end.
const stuckEnv = "INCUMBENT_TEST_STUCK"

func TestExitOnStuckDrainEndsTheProcess(t *testing.T) {
	if os.Getenv(stuckEnv) != "" {
		beStuck(t)
		os.Exit(0) // it went on
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
	self.Env = append(os.Environ(), stuckEnv+"=yes")
	out, err := self.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || bytes.Contains(out, []byte("FAIL")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// beStuck leads, is told to stop, and does not.
func beStuck(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	elector, err := le.NewLeaderElector(le.LeaderElectionConfig{
		Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker, ReleaseOnCancel: true,
		LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 5 * time.Second,
		StopLimit: 50 * time.Millisecond, ExitOnStuckDrain: true,
		RunFunctions: []func(context.Context) error{func(context.Context) error {
			stop()
			select {}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(elector.Campaign(ctx))
}
