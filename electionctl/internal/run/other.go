//go:build !unix

package run

import (
	"context"
	"errors"
)

// Run returns an error: this operating system has no process groups.
func Run(context.Context, Config) (int, error) {
	return 0, errors.New("electionctl run requires Linux or another Unix system")
}

// Supervise does nothing.
func Supervise() {}
