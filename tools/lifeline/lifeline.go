package lifeline

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// Variable names the environment variable that holds the file descriptor.
	Variable = "INCUMBENT_LIFELINE"
	// grace is how long a program has for an orderly end once the lifeline broke.
	grace = 5 * time.Second
)

// Hold starts to watch the lifeline that was given by the environment, if any. When
// it breaks, the program is asked to end (SIGTERM to itself), and is ended after five
// seconds. A variable that names no open pipe ends the program with a message: without
// its lifeline it would stay behind.
func Hold() {
	text, given := os.LookupEnv(Variable)
	if !given {
		return
	}
	pipe, err := open(text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s=%s: %v\n", Variable, text, err)
		os.Exit(2)
	}
	go watch(pipe)
}

// open takes over the inherited descriptor and keeps it from being inherited on.
func open(text string) (*os.File, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("want the number of an inherited file descriptor, 3 or more")
	}
	pipe := os.NewFile(uintptr(fd), "lifeline")
	if pipe == nil {
		return nil, fmt.Errorf("no such file descriptor")
	}
	info, err := pipe.Stat()
	if err != nil {
		return nil, fmt.Errorf("no open file descriptor: %w", err)
	}
	if info.Mode()&os.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("want a pipe, got %v", info.Mode().Type())
	}
	syscall.CloseOnExec(fd)
	return pipe, nil
}

// watch waits for the end of the file. A read that fails otherwise counts as the end:
// a program that cannot see its starter has none.
func watch(pipe *os.File) {
	_, _ = io.Copy(io.Discard, pipe)
	time.AfterFunc(grace, func() {
		fmt.Fprintf(os.Stderr, "lifeline: still here %v after the starter is gone: exiting\n", grace)
		os.Exit(1)
	})
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
