package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// starterVariable makes the test program start a process and wait to be killed. Its value is a signal for the process, or 0.
const starterVariable = "PROCESS_TEST_STARTER"

func TestMain(m *testing.M) {
	if text := os.Getenv(starterVariable); text != "" {
		fmt.Println(starter(text))
		select {}
	}
	goleak.VerifyTestMain(m)
}

// starter returns the ID of the process, or an error.
func starter(text string) any {
	number, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	p, err := Start(Spec{Name: "child", Path: "/bin/sleep", Args: []string{"600"}, Log: os.DevNull})
	if err == nil {
		err = p.Signal(syscall.Signal(number))
	}
	if err != nil {
		return err
	}
	return p.Pid()
}

func TestKilledStarter_LeavesNoProcess(t *testing.T) {
	self, err := os.Executable()
	harness.Must(t, err)
	for name, signal := range map[string]syscall.Signal{"running": 0, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(self)
			command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", starterVariable, signal))
			output, err := command.StdoutPipe()
			harness.Must(t, err)
			harness.Must(t, command.Start())
			line, _ := bufio.NewReader(output).ReadString('\n')
			harness.Must(t, command.Process.Kill())
			_ = command.Wait()
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("the starter printed %q", line)
			}
			harness.Until(t, "the process has ended", func() bool {
				arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				return err != nil || len(arguments) == 0 // it is empty until the parent has waited for the process
			})
		})
	}
}

// shell runs a script until the test ends.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Spec{
		Name: "the script", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Log: filepath.Join(t.TempDir(), "folder", "log"),
	})
	harness.Must(t, err)
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
			harness.Until(t, "the script is up", func() bool { return strings.Contains(p.Tail(), "up") })
			if c.stopped {
				harness.Must(t, p.Signal(syscall.SIGSTOP))
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

// A shell may wait in vfork for its child, which SIGSTOP must not stop before its exec.
func TestSignal_WaitsForStop(t *testing.T) {
	for name, script := range map[string]string{"computes": "while :; do :; done", "forks": "while :; do /bin/true; done"} {
		t.Run(name, func(t *testing.T) { waitsForStop(t, shell(t, script)) })
	}
}

func waitsForStop(t *testing.T, p *Process) {
	for range 200 {
		harness.Must(t, p.Signal(syscall.SIGSTOP))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		harness.Must(t, err)
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			t.Fatalf("state after SIGSTOP: %.1s", state)
		}
		harness.Must(t, p.Signal(syscall.SIGCONT))
	}
	harness.Must(t, p.Kill())
	if err := p.Signal(syscall.SIGSTOP); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGSTOP to an ended process: %v", err)
	}
}
