package process

import (
	"errors"
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

func TestFailure(t *testing.T) {
	p := shell(t, "echo one; echo two >&2; exit 3")
	<-p.Done()
	if code := p.State().ExitCode(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	failure := p.Failure()
	if failure == nil {
		t.Fatal("it did not fail")
	}
	for _, words := range []string{"the script ended unexpectedly", "exit status 3", "    one\n    two", p.Log()} {
		if !strings.Contains(failure.Error(), words) {
			t.Errorf("missing %q in: %v", words, failure)
		}
	}
	if err := p.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to an ended process: %v", err)
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("stopping it: %v", err)
	}
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

func TestStart_Environment(t *testing.T) {
	t.Setenv("OF_THE_STARTER", "only")
	folder := t.TempDir()
	p, err := Start(Spec{
		Name: "the script", Path: "/bin/sh", Args: []string{"-c", "pwd; echo given=$GIVEN starter=$OF_THE_STARTER"},
		Env: []string{"GIVEN=yes"}, Dir: folder, Log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if tail := p.Tail(); !strings.Contains(tail, "    "+folder+"\n") || !strings.HasSuffix(tail, "given=yes starter=") {
		t.Error(tail)
	}
}
