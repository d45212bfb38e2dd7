package run

import (
	"errors"
	"io/fs"
	"log/slog"
	"os/exec"
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
	Logger  *slog.Logger
}

// InvalidError means that the configuration is invalid, so Run started nothing.
type InvalidError struct{ error }

// Exit codes of a program that did not run, as in env and timeout.
const (
	CannotExecute = 126
	NotFound      = 127
)

// notStarted returns the exit code for an error of starting a program.
func notStarted(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return NotFound
	}
	return CannotExecute
}
