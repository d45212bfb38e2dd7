//go:build !linux

package witness

import (
	"context"
	"errors"
	"log/slog"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

var errNoLinux = errors.New("a witness requires Linux")

// Client does nothing on this operating system.
type Client struct{}

// FromParent returns nil: no parent supervises this process.
func FromParent() (*Client, error) { return nil, nil }

// Dial returns a client that does nothing.
func Dial(string, *slog.Logger) *Client { return nil }

// Register does nothing.
func (*Client) Register(k8sleaderelection.WitnessedTerm) {}

// Remove does nothing.
func (*Client) Remove(k8sleaderelection.WitnessedTerm) {}

// Connected returns false.
func (*Client) Connected() bool { return false }

// For returns the client.
func (c *Client) For(string, func() bool) k8sleaderelection.Witness { return c }

// Serve returns an error.
func Serve(context.Context, string, Options) error { return errNoLinux }

// Supervise returns an error.
func Supervise(Options) error { return errNoLinux }
