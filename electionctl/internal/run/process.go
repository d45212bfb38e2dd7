//go:build unix

package run

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// exec starts the program and waits for its end. It uses one thread, because the kernel kills the program when this thread ends.
func (r *runner) exec(term k8sleaderelection.Term, started chan<- error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, err := os.StartProcess(r.path, r.Program, &os.ProcAttr{
		Env: r.environment(term), Files: []*os.File{r.Stdin, r.Stdout, r.Stderr}, Sys: attributes(),
	})
	if err != nil {
		started <- err
		return err
	}
	pid := process.Pid
	_ = process.Release() // Wait4 waits for it
	if r.group.Store(int64(pid)); !r.open.Load() {
		r.signal(syscall.SIGKILL)
	}
	started <- nil
	status := wait(pid)
	// Processes that the program has left must not act without a leader either.
	r.signal(syscall.SIGKILL)
	r.group.Store(0)
	r.ended.Store(&status)
	r.Logger.Info("program ended", "status", status.String())
	return programError{status}
}

// wait waits for a child. Process 1 of a container also has the orphans of other processes.
func wait(pid int) Status {
	which := pid
	if os.Getpid() == 1 {
		which = -1
	}
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(which, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // cannot happen: no other function waits
			return Status{Code: 1}
		case ended == pid && status.Signaled():
			return Status{Signal: status.Signal()}
		case ended == pid:
			return Status{Code: status.ExitStatus()}
		}
	}
}
