package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
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

func TestStop_IgnoresSIGTERM(t *testing.T) {
	// exec keeps an ignored signal ignored.
	p := shell(t, "trap '' TERM; echo deaf; exec sleep 60")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.Tail(), "deaf"); {
		if time.Now().After(deadline) {
			t.Fatal("it does not start:", p.Tail())
		}
	}
	if err := p.Stop(10 * time.Millisecond); err != nil {
		t.Error(err)
	}
	if p.State().String() != "signal: killed" {
		t.Errorf("it ended with %v", p.State())
	}
}

func TestStop_StoppedProcess(t *testing.T) {
	p := shell(t, "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done")
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.Tail(), "up"); {
		if time.Now().After(deadline) {
			t.Fatal("it does not start:", p.Tail())
		}
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(20 * time.Second); err != nil {
		t.Error(err)
	}
	if code := p.State().ExitCode(); code != 7 {
		t.Errorf("it ended with %v", p.State())
	}
}
