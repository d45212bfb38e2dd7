package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell runs a script until the test ends.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Spec{
		Name: "the script", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Log: filepath.Join(t.TempDir(), "folder", "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		stopped bool
		grace   time.Duration
		state   string
	}{
		"ignores SIGTERM": {"trap '' TERM; echo up; exec sleep 600", false, 10 * time.Millisecond, "signal: killed"}, // exec keeps the signal ignored
		"is stopped":      {"trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done", true, time.Minute, "exit status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, c.script)
			waits.Until(t, "the script is up", func() bool { return strings.Contains(p.Tail(), "up") })
			if c.stopped {
				if err := p.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Stop(c.grace); err != nil {
				t.Error(err)
			}
			if p.State().String() != c.state {
				t.Errorf("it ended with %v, want %s", p.State(), c.state)
			}
		})
	}
}
