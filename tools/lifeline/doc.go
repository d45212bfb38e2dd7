// Package lifeline ends a program when the processes that need it have ended, even after SIGKILL.
//
// A lifeline is a pipe. The program inherits the reading end. The processes that need the program hold the writing end and
// never write. The kernel closes their ends when they end, so the program then reads end of file. etcd's lifeline is held
// by the starter and by the API server, so etcd outlives the API server.
//
// The environment variable INCUMBENT_LIFELINE contains the inherited file descriptor. Without it the package does nothing.
//
// A stopped program (SIGSTOP) reads nothing. On Linux the starter therefore requests SIGKILL at its own death
// (PR_SET_PDEATHSIG). This package replaces it by SIGCONT, so that the program continues, reads the end, and shuts down.
package lifeline
