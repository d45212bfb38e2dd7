package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a started program.
type Process struct {
	// Name is used in messages.
	Name string
	// Out and Errors are the output so far.
	Out, Errors Log

	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a command with exactly this environment. The process is killed at the end of the test or of the test
// process. If the test fails, its output is logged.
func Start(t testing.TB, name string, env []string, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.Out, &p.Errors
	// If a member of an orphaned process group, as under CI, is stopped while another ends, the kernel sends SIGHUP to the group.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the result is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s%s", name, end(p.Out.String()), end(p.Errors.String()))
		}
	})
	return p
}

// end returns the end of a long text.
func end(text string) string {
	const most = 20_000
	return text[max(0, len(text)-most):]
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Children returns the IDs of the child processes of a process. Without /proc, there are none.
func Children(pid int) ([]int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			all = append(all, child)
		}
	}
	return all, nil
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill kills the process like a crash, if it is running.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Send(s); err != nil {
		t.Fatal(err)
	}
}

// Send sends a signal. If the process has ended, the error wraps os.ErrProcessDone.
func (p *Process) Send(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Exit waits for the end of the process. It returns the exit code, or minus the signal.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		t.Fatalf("%s did not end within %v", p.Name, Patience)
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}
