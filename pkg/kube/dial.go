package kube

// net/http.Transport waits for one slow connection attempt. The functions in this file start further attempts, and limit them.

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// firstSetup is the time after which a second set-up of a connection starts if the first is not ready. It is longer if the latest
	// set-ups took longer. It doubles for each further set-up, up to lastSetup, until one succeeds. So a pool starts at most 5 set-ups
	// in the first 4 s without success, and then 30 a minute.
	firstSetup = 250 * time.Millisecond
	lastSetup  = 2 * time.Second
	// longestSetup limits a set-up.
	longestSetup = 15 * time.Second
)

// request is a request that may wait for a connection. ended closes when it has a connection, or has ended.
type request struct {
	mu               sync.Mutex
	has              bool // a connection
	connected, ended chan struct{}
}

func newRequest() *request {
	return &request{connected: make(chan struct{}), ended: make(chan struct{})}
}

// setConnected records whether the request has a connection. net/http sends a request again if its connection is closed before the
// answer, and then it needs another one.
func (r *request) setConnected(has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case has && !r.has:
		close(r.connected)
	case !has && r.has:
		r.connected = make(chan struct{})
	}
	r.has = has
}

// state returns whether the request has a connection, and its channels.
func (r *request) state() (has bool, connected, ended <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has, r.connected, r.ended
}

type requestKey struct{}

// target is the address of connections, with their settings, and whether the set-up includes TLS.
type target struct {
	like             *http.Transport
	tls              bool
	network, address string
}

// setups sets up the connections of a pool to one target. A set-up belongs to the pool and not to the request that needs the
// connection: it continues if the request ends, and its connection serves the next request. At most two run at the same time. The
// first continues until it has ended. The second ends when the next is due.
type setups struct {
	connect func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	waiting []*waiter
	running []*setup
	tries   int                // set-ups since the last success
	due     time.Time          // of the next set-up
	timer   *time.Timer        // calls advance at that time
	usual   apirequest.Latency // of set-ups
	// exclusive reports that a connection serves one request at a time, as in HTTP/1.1.
	exclusive bool
}

// setup is one connection that is being set up.
type setup struct{ cancel context.CancelFunc }

// waiter is a call of get.
type waiter struct {
	ctx    context.Context
	of     *generation
	result chan dialed
	idle   bool // the request has ended without a connection, so that only a later request needs it
}

type dialed struct {
	conn net.Conn
	err  error
}

// errNotNeeded ends a dial of net/http.Transport whose result is ignored.
var errNotNeeded = errors.New("connection is not needed any more")

// get returns the next connection that is ready, for a generation. Its context has the values of the request, and ends when
// net/http.Transport closes idle connections after the request.
func (s *setups) get(ctx context.Context, g *generation) (net.Conn, error) {
	w := &waiter{ctx: ctx, of: g, result: make(chan dialed, 1)}
	s.change(func() { s.waiting = append(s.waiting, w) })
	var connected, ended <-chan struct{}
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		_, connected, ended = r.state()
	}
	for {
		select {
		case d := <-w.result:
			return d.conn, d.err
		case <-ended:
			ended = nil
			s.change(func() { w.idle = true })
		case <-connected:
			return s.leave(w, errNotNeeded)
		case <-ctx.Done():
			return s.leave(w, context.Cause(ctx))
		}
	}
}

// leave removes a waiter, unless it has a result.
func (s *setups) leave(w *waiter, err error) (net.Conn, error) {
	s.change(func() {
		if i := slices.Index(s.waiting, w); i >= 0 {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			w.result <- dialed{nil, err}
		}
	})
	d := <-w.result
	return d.conn, d.err
}

// change makes a change, and then starts the set-ups that are due.
func (s *setups) change(make func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	make()
	for s.advance() {
	}
}

// advance starts the next set-up if it is due. It ends the waiters that no set-up serves. The caller holds mu.
func (s *setups) advance() (started bool) {
	next := slices.IndexFunc(s.waiting, func(w *waiter) bool { return !w.idle })
	if next < 0 {
		if len(s.running) == 0 {
			s.end(errNotNeeded)
		}
		return false
	}
	left := time.Until(s.due) //nolint:forbidigo // the interval between set-ups
	more := s.exclusive && s.tries == len(s.running) && len(s.waiting) > len(s.running)
	switch {
	case left > 0 && (len(s.running) == 2 || !more):
		s.wake(left)
	case len(s.running) == 2:
		s.running[1].cancel() // its end starts the next
	default:
		s.start(s.waiting[next].ctx)
		return true
	}
	return false
}

// wake calls advance later.
func (s *setups) wake(after time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(after, func() { s.change(func() {}) })
		return
	}
	s.timer.Reset(after)
}

// end ends all waiters with an error.
func (s *setups) end(err error) {
	for _, w := range s.waiting {
		w.result <- dialed{nil, err}
	}
	s.waiting = nil
}

// start starts a set-up.
func (s *setups) start(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestSetup)
	one := &setup{cancel}
	s.running = append(s.running, one)
	now := time.Now() //nolint:forbidigo // the interval between set-ups
	interval := max(firstSetup<<min(s.tries, 8), s.usual.Longest()*5/4)
	s.due = now.Add(min(interval, lastSetup))
	s.tries++
	go func() {
		defer cancel()
		conn, err := s.connect(ctx)
		if err == nil {
			s.usual.Answered(time.Since(now)) //nolint:forbidigo // measures the set-up
		}
		s.change(func() { s.ended(one, conn, err) })
	}()
}

// ended passes the result of a set-up to a waiter, if possible to a waiter whose request has not ended.
func (s *setups) ended(one *setup, conn net.Conn, err error) {
	i := slices.Index(s.running, one)
	s.running = slices.Delete(s.running, i, i+1)
	if err != nil {
		if len(s.running) == 0 {
			s.end(err)
		}
		return
	}
	s.tries = len(s.running)
	secured, ok := conn.(*tls.Conn)
	s.exclusive = !ok || secured.ConnectionState().NegotiatedProtocol != "h2"
	if len(s.waiting) == 0 {
		_ = conn.Close()
		return
	}
	i = max(0, slices.IndexFunc(s.waiting, func(w *waiter) bool { return !w.idle }))
	s.waiting[i].of.adopt(conn)
	s.waiting[i].result <- dialed{conn, nil}
	s.waiting = slices.Delete(s.waiting, i, i+1)
}

// closeIdle ends the set-ups if no request needs them.
func (s *setups) closeIdle() {
	s.change(func() {
		if slices.ContainsFunc(s.waiting, func(w *waiter) bool { return !w.idle }) {
			return
		}
		for _, one := range s.running {
			one.cancel()
		}
		if s.timer != nil {
			s.timer.Stop()
		}
	})
}

// secure does the TLS handshake as net/http.Transport does, so that it is part of the set-up.
func (g *generation) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	config := g.TLSClientConfig.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config.ServerName = host
	}
	if g.TLSHandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.TLSHandshakeTimeout)
		defer cancel()
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}
