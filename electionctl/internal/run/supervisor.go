//go:build unix

package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

const (
	// supervisorName is the first argument of a supervisor. The name differs from the name of the program, so that a kill by name ends only
	// one of the two processes.
	supervisorName = "election-supervisor"
	// controlFD is the file descriptor of the pipe from the candidate. A message is a number of 64 bits: the end of the validity, or
	// a negated signal for the program.
	controlFD = 3
	// maxPause is the maximum time between two searches for processes that have not ended.
	maxPause = time.Second
)

// Supervise runs this process as a supervisor if Run started it as one. Call it first in the main function.
func Supervise() {
	if os.Args[0] == supervisorName && len(os.Args) > 2 {
		os.Exit(supervise(os.Args[1], os.Args[2:]))
	}
}

// supervise runs the program, kills the processes that it leaves, and returns its exit code.
func supervise(path string, program []string) int {
	runtime.LockOSThread() // the kernel kills the program when this thread ends
	syscall.CloseOnExec(controlFD)
	control := os.NewFile(controlFD, "control")
	validity, err := newAlarm()
	if err == nil {
		err = adoptOrphans()
	}
	var end int64
	if err == nil {
		err = binary.Read(control, binary.NativeEndian, &end)
	}
	if err == nil && end == 0 {
		return 128 + int(syscall.SIGKILL) // the term has ended already
	}
	var process *os.Process
	if err == nil {
		validity.set(end)
		go validity.kill()
		process, err = os.StartProcess(path, program, &os.ProcAttr{
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes(),
		})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "electionctl: %v\n", err)
		return notStarted(err)
	}
	go func() {
		for binary.Read(control, binary.NativeEndian, &end) == nil && end != 0 {
			if end > 0 {
				validity.set(end)
			} else {
				signalTree(syscall.Signal(-end))
			}
		}
		killForever() // the term or the candidate has ended
	}()
	ended := wait(process.Pid, -1)
	go killForever() // what the program has left
	wait(0, -1)
	return exitCode(ended)
}

// killForever kills all processes below this one. It does not return, because more of them may become visible. The process ends when
// the kernel reports that it has no children.
func killForever() {
	for {
		killTree()
		<-time.After(maxPause)
	}
}

// killTree kills all processes below this one, and returns when it finds none.
func killTree() {
	for pause := time.Millisecond; signalTree(syscall.SIGKILL) > 0; pause = min(2*pause, maxPause) {
		<-time.After(pause)
	}
}

// wait waits for the child pid. If which is -1, it also waits for all other children that end before.
func wait(pid, which int) (status syscall.WaitStatus) {
	for {
		ended, err := syscall.Wait4(which, &status, 0, nil)
		if ended == pid || err != nil && !errors.Is(err, syscall.EINTR) { // no children
			return status
		}
	}
}

// exitCode returns the exit code, or 128 plus the signal.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
