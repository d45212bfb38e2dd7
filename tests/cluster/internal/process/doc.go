// Package process runs programs that end with the one that started them, however that
// one ends: by itself, by Ctrl-C, by a crash or by SIGKILL.
//
// Two things see to that. On Linux the kernel is asked to send SIGKILL when the
// starter dies (PR_SET_PDEATHSIG). The kernel ties this to the *thread* that forked,
// and Go ends threads when it likes; so each process has a goroutine that is locked to a
// thread of its own, forks on it and waits on it, and the thread outlives the child.
// A program that knows lifelines (incumbent.dev/incumbent/tools/lifeline) inherits a
// pipe besides, softens that SIGKILL, and ends in order once the pipe breaks; since
// others can hold the pipe too (Spec.Needs), a program outlives those that need it.
//
// Each process leads a process group, so that Ctrl-C in a terminal reaches the starter
// only, which then ends the others in its order.
package process
