package run

import (
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Config configures a program and its election.
type Config struct {
	// Client locates the API server.
	Client *rest.Config
	// Namespace, Election and Identity are the namespace and the name of the Lease, and the name of this candidate.
	Namespace, Election, Identity string
	// LeaseDuration, RenewDeadline and RetryPeriod are the timing of the election.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// Once ends Run after the first term. Otherwise the program is started again in the next term.
	Once bool
	// Program is the program with its arguments.
	Program []string
	// Stdin, Stdout and Stderr are the standard files of the program.
	Stdin, Stdout, Stderr *os.File
	Logger                *slog.Logger
}

// Status is how the program ended. Signal is zero if it exited.
type Status struct {
	Code   int
	Signal syscall.Signal
}

func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("signal %v", s.Signal)
	}
	return fmt.Sprintf("exit code %d", s.Code)
}

// InvalidError means that the configuration is invalid, so Run started nothing.
type InvalidError struct{ error }
