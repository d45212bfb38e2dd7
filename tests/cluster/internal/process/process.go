package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// killWait bounds the wait for a process after SIGKILL. Only one that the kernel
// cannot end, such as one stuck in a device, outlasts it.
const killWait = 10 * time.Second

// stopWait bounds the wait for a process to stop after SIGSTOP.
const stopWait = 10 * time.Second

// Process is a started program.
type Process struct {
	name, log string
	process   *os.Process
	lifeline  *os.File
	done      chan struct{}
	state     *os.ProcessState // set before done is closed
}

// Start runs what spec says. The process is waited for by a goroutine that ends with it;
// Stop sees to that.
func Start(spec Spec) (*Process, error) {
	log, err := spec.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd, child, keep, err := spec.command()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	cmd.Stdout, cmd.Stderr = log, log

	p := &Process{name: spec.Name, log: spec.Log, lifeline: keep, done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, started)
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", spec.Name, err), keep.Close())
	}
	return p, nil
}

// own forks and waits on one thread: see the package's documentation.
func (p *Process) own(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	p.process = cmd.Process
	started <- err
	if err != nil {
		return
	}
	// Its error repeats what the state says: output goes to a file, so that there is
	// nothing else that could fail.
	_ = cmd.Wait()
	p.state = cmd.ProcessState
	_ = p.lifeline.Close()
	close(p.done)
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.process.Pid }

// Log is the file that the output goes to.
func (p *Process) Log() string { return p.log }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State says how the process ended, or is nil while it runs.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.done:
		return p.state
	default:
		return nil
	}
}

// Signal sends a signal. The error wraps os.ErrProcessDone when the process has ended. After
// SIGSTOP it returns when the process has stopped: until then its threads may still answer.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.process.Signal(signal); err != nil {
		return fmt.Errorf("sending %v to %s (process %d): %w", signal, p.name, p.Pid(), err)
	}
	if signal == syscall.SIGSTOP {
		return p.awaitStopped()
	}
	return nil
}

// awaitStopped is bounded by stopWait.
func (p *Process) awaitStopped() error {
	bound := time.NewTimer(stopWait)
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
			return fmt.Errorf("%s (process %d) has ended instead of stopping: %w", p.name, p.Pid(), os.ErrProcessDone)
		case <-bound.C:
			return fmt.Errorf("%s (process %d) goes on %v after SIGSTOP", p.name, p.Pid(), stopWait)
		}
	}
}

// Stop asks the process to end (SIGTERM), ends it after grace (SIGKILL), and returns
// when it is gone. One that is stopped (SIGSTOP) is woken first. Stopping twice is
// harmless.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.end(syscall.SIGTERM, grace); err == nil {
		return nil
	}
	return p.Kill()
}

// Kill ends the process (SIGKILL) and returns when it is gone.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, killWait) }

// end sends a signal and waits for the end.
func (p *Process) end(signal syscall.Signal, bound time.Duration) error {
	// Failing signals mean that it has ended, or show in the wait below.
	_ = p.process.Signal(signal)
	_ = p.process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s (process %d) is still there %v after %v", p.name, p.Pid(), bound, signal)
	}
}
