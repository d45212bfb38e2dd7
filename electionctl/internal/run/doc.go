// Package run runs a program of any language while this process leads an election.
//
// The process is candidate, gate and witness of the program. The program runs in its own process group. At the end of the
// validity the group is killed, which stops a program that hangs. The lock is released after the kernel has reported the end of
// the program.
package run
