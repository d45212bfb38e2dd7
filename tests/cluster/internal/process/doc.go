// Package process runs programs that end together with the process that started them, even if that process is killed. It requires
// Linux.
//
// The kernel sends SIGKILL when the starter dies (PR_SET_PDEATHSIG). The kernel binds this to the *thread* that
// forked, and Go ends threads at any time. So each process has a goroutine that is locked to a thread, which forks and
// waits there.
//
// Each process leads a process group, so that Ctrl-C in a terminal reaches only the starter.
package process
