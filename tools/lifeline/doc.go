// Package lifeline ends a program when those who need it are gone, however they
// went: by a normal exit, Ctrl-C, a crash or SIGKILL.
//
// A lifeline is a pipe. The program inherits its reading end, and those who need the
// program hold the writing end and never write. The kernel closes their ends when
// they die, so the reader sees the end of the file when the last of them is gone. That makes an
// order too: etcd's lifeline is held by the starter and by the API server, so etcd
// outlives the API server by itself, without a delay that someone has to guess.
//
// The environment variable INCUMBENT_LIFELINE gives the number of the inherited file
// descriptor. Without it a program is as its authors made it.
//
// A pipe alone has a hole: a program that is stopped (SIGSTOP) reads nothing. A
// starter on Linux therefore asks the kernel for SIGKILL at its own death
// (PR_SET_PDEATHSIG), which also serves programs that know nothing of lifelines, and
// this package softens it to SIGCONT: the program wakes, reads the end, and ends in order.
package lifeline
