package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"

	"incumbent.dev/incumbent/internal/hooks"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Client registers the terms of this process with its witness. It implements k8sleaderelection.Witness. The nil Client has
// no witness and does nothing.
//
// Every call is a system call that does not block, in the goroutine of the caller. If the witness does not read, or has
// restarted, the next call sends the missing terms. A leader calls Register with each renewal. The client closes its socket only
// after the witness has closed it, because the witness would otherwise release the locks of a live process.
type Client struct {
	path  string // of a socket, to connect again; empty for the socket of the parent
	hooks hooks.Queue
	log   *slog.Logger // uses hooks

	mu       sync.Mutex
	fd       int // -1 without a connection
	rejected bool
	failure  string // the last logged one
	terms    terms
	unsent   map[lockKey]bool
}

// parent is the client of the socket in the environment. Later calls return the same client, because the first one removes the
// variable.
var parent = sync.OnceValues(func() (*Client, error) {
	text, given := os.LookupEnv(variable)
	if !given {
		return nil, nil
	}
	// Processes that this process starts must not inherit the variable or the socket.
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(text)
	if err == nil {
		_, err = syscall.Getpeername(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not an inherited socket: %w. Unset it.", variable, text, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return newClient("", fd), nil
})

// FromParent returns the client of the parent that supervises this process. It is nil without such a parent.
func FromParent() (*Client, error) { return parent() }

// Dial returns a client for the socket of a sidecar. It connects at the first registration, and again after the witness has
// restarted. The default of log is slog.Default.
func Dial(path string, log *slog.Logger) *Client {
	c := newClient(path, -1)
	if log != nil {
		c.log = c.hooks.Logger(log)
	}
	return c
}

func newClient(path string, fd int) *Client {
	c := &Client{path: path, fd: fd, terms: terms{}, unsent: map[lockKey]bool{}}
	c.log = c.hooks.Logger(slog.Default())
	return c
}

// Register implements k8sleaderelection.Witness, with deathGrace, for a lock in the cluster of this process.
func (c *Client) Register(t k8sleaderelection.WitnessedTerm) { c.For("", nil).Register(t) }

// Remove implements k8sleaderelection.Witness.
func (c *Client) Remove(t k8sleaderelection.WitnessedTerm) { c.For("", nil).Remove(t) }

// For returns a witness for the locks of a cluster (see Options.Connect). fenced reports whether a verified fence rejects late
// writes of an ended term, so that the release needs no grace. If nil, deathGrace applies.
func (c *Client) For(cluster string, fenced func() bool) k8sleaderelection.Witness {
	return view{c, cluster, fenced}
}

type view struct {
	*Client
	cluster string
	fenced  func() bool
}

func (v view) Register(t k8sleaderelection.WitnessedTerm) {
	if v.Client == nil {
		return
	}
	r := registration{Cluster: v.cluster, Grace: deathGrace, WitnessedTerm: t}
	if v.fenced != nil && v.fenced() {
		r.Grace = 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := r.key(); v.terms[key] != r {
		v.terms[key] = r
		v.unsent[key] = true
	}
	v.flush()
}

func (v view) Remove(t k8sleaderelection.WitnessedTerm) {
	if v.Client == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	key := registration{Cluster: v.cluster, WitnessedTerm: t}.key()
	delete(v.terms, key)
	v.unsent[key] = true
	v.flush()
}

// Connected reports whether the witness can receive terms. It connects again to the socket of a sidecar.
func (c *Client) Connected() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
	return c.fd >= 0 && !c.rejected
}

// flush sends the changes that the witness has not received.
func (c *Client) flush() {
	c.read()
	if c.fd < 0 && !c.connect() || c.rejected {
		return
	}
	for key := range c.unsent {
		m := message{Version: protocolVersion, Remove: &key}
		if r, registered := c.terms[key]; registered {
			m = message{Version: protocolVersion, Register: &r}
		}
		raw, err := json.Marshal(m)
		if err == nil {
			err = syscall.Sendto(c.fd, raw, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, nil)
		}
		if err != nil {
			c.failed("send to the witness", err) // read notices a closed socket
			return
		}
		delete(c.unsent, key)
	}
	c.failure = ""
}

// read reads rejections of the witness, and the end of the connection.
func (c *Client) read() {
	raw := make([]byte, maxMessage)
	for c.fd >= 0 {
		n, _, err := syscall.Recvfrom(c.fd, raw, syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return
		case err != nil && !errors.Is(err, syscall.ECONNRESET):
			c.failed("receive from the witness", err) // it may be alive
			return
		case err != nil || n == 0:
			c.failed("witness ended", err)
			_ = syscall.Close(c.fd)
			c.fd = -1
			return
		}
		var r reply
		if json.Unmarshal(raw[:n], &r) == nil && r.Error != "" {
			c.rejected = true
			c.failed("witness rejected the terms of this process", errors.New(r.Error))
		}
	}
}

// connect connects to the socket of a sidecar. All terms have to be sent again.
func (c *Client) connect() bool {
	if c.path == "" {
		return false
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err == nil {
		if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: c.path}); err != nil {
			_ = syscall.Close(fd)
		}
	}
	if err != nil {
		c.failed("connect to the witness at "+c.path, err)
		return false
	}
	c.fd, c.rejected = fd, false
	clear(c.unsent)
	for key := range c.terms {
		c.unsent[key] = true
	}
	return true
}

// failed logs a failure once.
func (c *Client) failed(what string, err error) {
	if text := fmt.Sprint(what, err); text != c.failure {
		c.failure = text
		c.log.Warn("no witness for the terms of this process; leases expire as without one", "failure", what, "err", err)
	}
}
