package witness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Supported reports whether the operating system reports the end of a process in a way that a witness can use.
const Supported = runtime.GOOS == "linux"

// variable is the environment variable with the file descriptor of the socket to the parent.
const variable = "INCUMBENT_WITNESS_FD"

// Main calls run in a child process, and is the witness of the child. The context ends with SIGTERM or SIGINT. Main does not
// return: the parent ends with the exit code or the signal of the child. If Supported is false, run is called in this process. If run
// returns an error, the child prints it and ends with exit code 1. Call it first in the main function, so that the parent starts
// nothing.
func Main(run func(ctx context.Context) error) {
	client, err := FromParent()
	if err == nil && client == nil && Supported {
		err = Supervise(Options{})
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt) //nolint:forbidigo // of the program
		context.AfterFunc(ctx, stop)
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}
