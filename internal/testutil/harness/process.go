package harness

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Process is a program that was started.
type Process struct {
	// Name is what the test calls it.
	Name string
	// Out and Errors are what it has written.
	Out, Errors Log

	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a command, with an environment that is all it has. It is killed when the test ends, or
// when the test's process does, and shown if the test has failed.
func Start(t testing.TB, name string, env []string, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.Out, &p.Errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // what it ended with is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s%s", name, end(p.Out.String()), end(p.Errors.String()))
		}
	})
	return p
}

// end is as much of a long text as one reads.
func end(text string) string {
	const most = 20_000
	return text[max(0, len(text)-most):]
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends it as a crash would. One that has ended stays as it is.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal sends it a signal.
func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Send(s); err != nil {
		t.Fatal(err)
	}
}

// Send is Signal to one that may have ended: then the error wraps os.ErrProcessDone.
func (p *Process) Send(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Exit waits for its end, and returns how it ended: an exit code, or minus a signal.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		t.Fatalf("%s has not ended within %v", p.Name, Patience)
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}
