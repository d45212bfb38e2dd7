package run

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const executable = "/proc/self/exe" // also after an update of the file

// deadline returns the end of a validity for the alarm of a supervisor.
func deadline(end k8sleaderelection.Validity) int64 { return end.Boot }

// alarm is a timer of CLOCK_BOOTTIME, which also counts while the machine sleeps.
type alarm struct{ file *os.File }

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	return alarm{os.NewFile(uintptr(fd), "timer")}, os.NewSyscallError("timerfd_create", err)
}

func (a alarm) set(end int64) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(end)}
	_ = unix.TimerfdSettime(int(a.file.Fd()), unix.TFD_TIMER_ABSTIME, &at, nil)
}

// kill waits for the alarm, and kills all processes.
func (a alarm) kill() {
	_, _ = a.file.Read(make([]byte, 8))
	killForever()
}

// adoptOrphans makes this process the parent of all descendants without a parent. Otherwise process 1 would be their parent.
func adoptOrphans() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// attributes let the program be in the process group of the candidate, so that it can read the terminal. The supervisor leaves that
// group, because a signal for the group must not end it.
func attributes() *syscall.SysProcAttr {
	group := syscall.Getpgrp()
	_ = syscall.Setpgid(0, 0)
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// supervisorAttributes has no parent-death signal: the supervisor must end the program first.
func supervisorAttributes() *syscall.SysProcAttr { return nil }

// proc is a process in /proc.
type proc struct {
	parent int
	start  string
	zombie bool
}

// read reads a process. The result is false if the process does not exist.
func read(pid int) (proc, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // the name before it may have any character
	if err != nil || len(fields) < 20 {
		return proc{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return proc{parent: parent, start: string(fields[19]), zombie: fields[0][0] == 'Z'}, err == nil
}

// signalTree sends a signal to all processes below this one, and returns how many have not ended.
func signalTree(s syscall.Signal) (live int) {
	entries, _ := os.ReadDir("/proc")
	all := map[int]proc{}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if p, exists := read(pid); exists {
				all[pid] = p
			}
		}
	}
	for pid, p := range all {
		if !below(all, p) {
			continue
		}
		if !p.zombie { // a process with a zombie as its first thread has other threads, or has ended
			live++
		}
		// The process may have ended, and another one may have its number. It does not change after FindProcess.
		if process, err := os.FindProcess(pid); err == nil {
			if now, exists := read(pid); exists && now.start == p.start {
				_ = process.Signal(s)
			}
			_ = process.Release()
		}
	}
	return live
}

// below reports whether a process is a descendant of this one.
func below(all map[int]proc, p proc) bool {
	own := os.Getpid()
	for range len(all) { // read at different times, they may form a cycle
		if p.parent == own {
			return true
		}
		p = all[p.parent]
	}
	return false
}

// killOrphans kills what a supervisor left that has ended: this process is the parent now.
func killOrphans(int) { killTree() }
