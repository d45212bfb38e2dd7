package wire

import (
	"context"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Mode is the state of a wire.
type Mode int

const (
	// Open forwards everything.
	Open Mode = iota
	// Refused resets all connections and refuses new ones.
	Refused
	// Swallowed keeps connections open and forwards nothing. The bytes arrive when the wire is open again, as with TCP.
	Swallowed
)

func (m Mode) String() string {
	return [...]string{"open", "refused", "swallowed"}[m]
}

// The limits of a connection attempt in client-go.
const (
	dialTimeout   = 30 * time.Second
	dialKeepAlive = 30 * time.Second
)

// Wire is the connection of one process. Create it with New.
type Wire struct {
	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed and replaced when mode changes
	conns   map[*conn]struct{}
	counts  map[string]int
}

// New returns an open wire.
func New() *Wire {
	return &Wire{changed: make(chan struct{}), conns: map[*conn]struct{}{}, counts: map[string]int{}}
}

// Config returns a copy of a configuration whose clients use this wire, without a rate limit.
func (w *Wire) Config(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Dial = w.dial
	config.Wrap(w.count)
	return config
}

// Set sets the mode.
func (w *Wire) Set(mode Mode) {
	w.mu.Lock()
	w.mode = mode
	close(w.changed)
	w.changed = make(chan struct{})
	conns := make([]*conn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, c := range conns {
		switch mode {
		case Refused:
			c.reset()
		case Open:
			c.flush()
		case Swallowed:
		}
	}
}

// Counts returns the number of requests so far by verb and resource, for example "update leases".
func (w *Wire) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}

func (w *Wire) state() (Mode, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode, w.changed
}

func (w *Wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for {
		switch mode, changed := w.state(); mode {
		case Refused:
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		case Swallowed:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			}
		case Open:
			below, err := (&net.Dialer{KeepAlive: dialKeepAlive}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return w.adopt(below), nil
		}
	}
}

func (w *Wire) adopt(below net.Conn) net.Conn {
	c := &conn{Conn: below, wire: w, closed: make(chan struct{})}
	w.mu.Lock()
	w.conns[c] = struct{}{}
	refused := w.mode == Refused
	w.mu.Unlock()
	if refused { // the mode changed while connecting
		c.reset()
	}
	return c
}

func (w *Wire) forget(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}
