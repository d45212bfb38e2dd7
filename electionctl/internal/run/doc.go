// Package run runs a program of any language while this process leads an election.
//
// The process is candidate, gate and witness of the program. Between it and the program is a supervisor, a second process of
// the same executable file. It is the parent of the program, and on Linux of each orphan among the descendants, so it finds all
// of them. It kills them at the end of the validity by its own timer, and after the end of the candidate or of the program. If the supervisor
// ends first, the kernel kills the program, and the candidate kills the descendants. The lock is released after that.
package run
