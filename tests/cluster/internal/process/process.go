package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// signalWait limits the wait after SIGKILL or SIGSTOP, in case the process is stuck in the kernel.
	signalWait = time.Minute
	// tailLines is the number of lines of a log in an error.
	tailLines = 12
)

// Spec describes a process.
type Spec struct {
	// Name is used in errors.
	Name string
	// Path is the program. Args are its arguments without the name.
	Path string
	Args []string
	// Env is the complete environment, as "KEY=value".
	Env []string
	// Dir is the working directory. Default: the current one.
	Dir string
	// Log is the file to which output is appended.
	Log string
}

// openLog opens the log and creates its folder.
func (s Spec) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(s.Log), 0o700); err != nil {
		return nil, fmt.Errorf("%s: create folder of log: %w", s.Name, err)
	}
	file, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: open log: %w", s.Name, err)
	}
	return file, nil
}

// Process is a started program.
type Process struct {
	name, log string
	process   *os.Process
	done      chan struct{}
	state     *os.ProcessState // set before done is closed
}

// Start starts a process. A goroutine waits for it and ends with it.
func Start(spec Spec) (*Process, error) {
	log, err := spec.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir, cmd.Env = spec.Dir, append([]string{}, spec.Env...) // an empty environment is not inherited
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // when the forking thread ends

	p := &Process{name: spec.Name, log: spec.Log, done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	return p, nil
}

// own forks and waits on one thread (see the package documentation).
func (p *Process) own(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	p.process = cmd.Process
	started <- err
	if err != nil {
		return
	}
	// The error repeats the state.
	_ = cmd.Wait()
	p.state = cmd.ProcessState
	close(p.done)
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State returns how the process ended, or nil while it runs.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.done:
		return p.state
	default:
		return nil
	}
}

// Signal sends a signal. The error wraps os.ErrProcessDone if the process has ended. After SIGSTOP it waits until all
// threads have stopped. SIGSTOP and SIGCONT are also sent to the children, as the pause of a container.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.process.Signal(signal); err != nil {
		return fmt.Errorf("send %v to %s (process %d): %w", signal, p.name, p.Pid(), err)
	}
	if signal == syscall.SIGSTOP {
		// Before the children: a thread in vfork stops only after the exec of its child.
		if err := p.awaitStopped(); err != nil {
			return err
		}
	}
	if signal == syscall.SIGSTOP || signal == syscall.SIGCONT {
		_ = syscall.Kill(-p.Pid(), signal.(syscall.Signal)) // an error means that all have ended
	}
	return nil
}

// awaitStopped waits until the process has stopped, at most for signalWait.
func (p *Process) awaitStopped() error {
	bound := time.NewTimer(signalWait)
	defer bound.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if is, err := p.stopped(); is || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-p.done:
			return fmt.Errorf("%s (process %d) ended instead of stopping: %w", p.name, p.Pid(), os.ErrProcessDone)
		case <-bound.C:
			return fmt.Errorf("%s (process %d) still runs %v after SIGSTOP", p.name, p.Pid(), signalWait)
		}
	}
}

// stopped reports whether every thread of the process has stopped. A server can respond until then. WNOWAIT keeps the
// state for other waits.
func (p *Process) stopped() (bool, error) {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, p.Pid(), &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return false, fmt.Errorf("get state of %s (process %d): %w", p.name, p.Pid(), err)
	}
	return info.Signo != 0, nil
}

// Stop sends SIGTERM, and SIGKILL after grace. It returns when the process has ended. It first continues a stopped
// process. It may be called twice.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.end(syscall.SIGTERM, grace); err == nil {
		return nil
	}
	return p.Kill()
}

// Kill sends SIGKILL and returns when the process has ended.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, signalWait) }

// end sends a signal and waits for the end.
func (p *Process) end(signal syscall.Signal, bound time.Duration) error {
	// An error means that the process has ended, or shows in the wait below.
	_ = p.process.Signal(signal)
	_ = syscall.Kill(-p.Pid(), syscall.SIGCONT) // also its children
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s (process %d) still exists %v after %v", p.name, p.Pid(), bound, signal)
	}
}

// Tail returns the end of the log, indented, after a line with the file name. It reports read errors in the text.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	switch {
	case err != nil:
		return fmt.Sprintf("failed to read the log: %v", err)
	case lines[0] == "":
		return fmt.Sprintf("it wrote nothing to %s", p.log)
	}
	return fmt.Sprintf("end of %s:\n    %s", p.log, strings.Join(lines[max(0, len(lines)-tailLines):], "\n    "))
}

// Failure returns an error for a process that ended, with the end of its log, or nil while it runs.
func (p *Process) Failure() error {
	state := p.State()
	if state == nil {
		return nil
	}
	return fmt.Errorf("%s ended unexpectedly (%v); %s", p.name, state, p.Tail())
}
