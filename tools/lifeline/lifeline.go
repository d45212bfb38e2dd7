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
	// Variable is the environment variable with the file descriptor.
	Variable = "INCUMBENT_LIFELINE"
	// grace limits the shutdown after the lifeline was closed.
	grace = 5 * time.Second
)

// Hold watches the lifeline in the environment, if any. When it is closed, the program gets SIGTERM, and exits after
// five seconds. An invalid variable ends the program with an error, because it would outlive its starter.
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

// open opens the inherited descriptor and sets close-on-exec.
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

// watch waits for the end of file. Any other read error counts as the end.
func watch(pipe *os.File) {
	_, _ = io.Copy(io.Discard, pipe)
	time.AfterFunc(grace, func() {
		fmt.Fprintf(os.Stderr, "lifeline: still running %v after the starter ended: exiting\n", grace)
		os.Exit(1)
	})
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
