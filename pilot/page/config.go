package page

import (
	"log/slog"
	"time"
)

// Config configures a Page.
type Config struct {
	// Source returns the current elections. One goroutine calls it, at most 20 times a second. It must not block.
	Source func() State
	// Changed signals that the elections may have changed. Use a channel of capacity 1 and skip the send if it is full. If
	// nil, the page reads Source every 5 seconds.
	Changed <-chan struct{}
	// Address is the listen address, which the caller has validated. The page accepts its host, localhost and loopback addresses in the Host header. If it
	// has no host (":15016", "0.0.0.0:15016"), the page accepts any address, but no other names.
	Address string
	// Log receives errors of clients at level debug. Optional.
	Log *slog.Logger
}

const (
	// idle is the interval at which the page publishes a frame without a change, to move the timeline and to detect dead
	// connections.
	idle = 5 * time.Second
	// writeTimeout is the maximum time to send a frame to a client.
	writeTimeout = 5 * time.Second
	// maxStreams is the maximum number of open streams, maxHistory is the maximum number of stored changes of each election.
	maxStreams = 128
	maxHistory = 512
)
