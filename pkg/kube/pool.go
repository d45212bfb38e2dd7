package kube

// net/http.Transport keeps a connection on which a request timed out, and waits for one slow connection attempt. The pool in
// this file replaces such connections.

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"go.uber.org/atomic"
)

const (
	// pingInterval is the time without data after which a connection is pinged. It is closed after pingTimeout without a
	// response. A request on a dead connection fails after the sum of both.
	pingInterval = 5 * time.Second
	pingTimeout  = 5 * time.Second
	// writeTimeout is the longest time that a connection may accept no bytes.
	writeTimeout = 10 * time.Second
	// firstSetup is the time after which a second connection attempt starts. It doubles for each further attempt, up to
	// lastSetup. The last attempt has the timeout of the dialer.
	firstSetup = 250 * time.Millisecond
	lastSetup  = 4 * time.Second
	// streamTimeout is the longest time until a stream begins.
	streamTimeout = 30 * time.Second
)

// pool has the connections for one kind of request. New requests use the current generation.
type pool struct {
	like    model
	streams bool

	mu      sync.Mutex
	present *generation
}

// generation is a set of connections that requests share until a request on one of them times out.
type generation struct {
	*http.Transport
	like *http.Transport

	mu      sync.Mutex
	used    int // number of requests
	retired bool
	open    map[*connection]struct{}
}

// take returns the current generation. The caller calls leave when its request has ended.
func (p *pool) take() *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if like := p.like.settings(); p.present == nil || p.present.like != like {
		if p.present != nil {
			p.present.retire()
		}
		p.present = p.generation(like)
	}
	p.present.mu.Lock()
	defer p.present.mu.Unlock()
	p.present.used++
	return p.present
}

func (p *pool) generation(like *http.Transport) *generation {
	g := &generation{Transport: like.Clone(), like: like, open: map[*connection]struct{}{}}
	// The HTTP/2 settings that client-go or Clone made refer to connections of the other transport.
	_, http2 := like.TLSNextProto["h2"]
	g.TLSNextProto, g.ForceAttemptHTTP2 = nil, http2
	g.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout}
	if p.streams {
		g.ResponseHeaderTimeout = streamTimeout
	}
	dial := like.DialContext
	if dial == nil {
		dial = newDialer().DialContext
	}
	g.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		p.like.refresh(ctx)
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return g.opened(conn), nil
	}
	return g
}

// retire removes a generation: later requests use another one.
func (p *pool) retire(g *generation) {
	p.mu.Lock()
	if p.present == g {
		p.present = nil
	}
	p.mu.Unlock()
	g.retire()
}

// closeIdle closes unused connections now, and the others when their requests have ended. An HTTP/2 connection becomes idle
// only some time after its last request, so closing idle connections is not enough.
func (p *pool) closeIdle() {
	p.mu.Lock()
	present := p.present
	p.present = nil
	p.mu.Unlock()
	if present != nil {
		present.retire()
	}
}

func (g *generation) retire() {
	g.mu.Lock()
	g.retired = true
	g.mu.Unlock()
	g.CloseIdleConnections()
	g.closeUnused()
}

func (g *generation) leave() {
	g.mu.Lock()
	g.used--
	g.mu.Unlock()
	g.closeUnused()
}

// closeUnused closes the connections of a retired generation if no request uses it.
func (g *generation) closeUnused() {
	g.mu.Lock()
	var unused []*connection
	if g.retired && g.used == 0 {
		for c := range g.open {
			unused = append(unused, c)
		}
	}
	g.mu.Unlock()
	for _, c := range unused {
		_ = c.Close()
	}
}

func (g *generation) opened(conn net.Conn) net.Conn {
	c := &connection{Conn: conn, of: g}
	g.mu.Lock()
	g.open[c] = struct{}{}
	late := g.retired && g.used == 0
	g.mu.Unlock()
	if late {
		_ = c.Close()
	}
	return c
}

// connection is a connection that its generation lists while it is open.
type connection struct {
	net.Conn
	of *generation
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

var (
	// errSlowSetup ends an attempt that has no connection yet.
	errSlowSetup = errors.New("connection setup is slow")
	// errCrossed ends an attempt whose connection was ready when the attempt was cancelled.
	errCrossed = errors.New("connection was ready too late")
)

// roundTrip starts another attempt while a connection is being set up. Earlier setups continue, and the request uses the first
// connection that is ready.
func (p *pool) roundTrip(req *http.Request) (*http.Response, error) {
	for patience := firstSetup; ; patience *= 2 {
		next := rewound(req)
		if patience > lastSetup || next == nil {
			patience = 0
		}
		resp, err := p.try(req, patience)
		if !retriable(req.Method, err) {
			return resp, err
		}
		req = next
	}
}

// retriable reports whether the request was not sent, or can be sent twice.
func retriable(method string, err error) bool {
	isRead := method == http.MethodGet || method == http.MethodHead
	return errors.Is(err, errSlowSetup) || isRead && errors.Is(err, errCrossed)
}

// rewound returns the request with an unread body, or nil if its body cannot be read again.
func rewound(req *http.Request) *http.Request {
	if req.Body == nil {
		return req
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	next := req.WithContext(req.Context())
	next.Body = body
	return next
}

// try sends the request once. If patience is positive and passes before a connection is ready, it returns errSlowSetup, and
// nothing was sent.
func (p *pool) try(req *http.Request, patience time.Duration) (*http.Response, error) {
	caller := req.Context()
	ctx, cancel := context.WithCancelCause(caller)
	g := p.take()
	end := sync.OnceFunc(func() {
		cancel(nil)
		g.leave()
	})
	setup := &setup{cancel: cancel, withholds: req.Body != nil && req.Body != http.NoBody}
	if patience > 0 {
		timer := time.AfterFunc(patience, setup.expire)
		defer timer.Stop()
	}
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: setup.gotConn}))
	if setup.withholds {
		req.Body = withheld{req.Body, setup}
	}
	resp, err := g.RoundTrip(req)
	if err != nil {
		defer end()
		return nil, p.failed(g, caller, setup, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols { // then the caller uses the body as a connection
		resp.Body = &body{ReadCloser: resp.Body, end: end, failed: func(err error) error {
			return p.failed(g, caller, setup, err)
		}}
	}
	return resp, nil
}

// failed returns the error of an attempt. It retires the generation if there was no response in time.
func (p *pool) failed(g *generation, ctx context.Context, setup *setup, err error) error {
	switch {
	case ctx.Err() != nil && setup.state.Load() > connected: // err reports a slow setup then
		return context.Cause(ctx)
	case setup.state.Load() == crossed && setup.withholds:
		return errSlowSetup // the body was not sent
	case setup.state.Load() == crossed:
		return errCrossed
	case setup.state.Load() == connected && timedOut(ctx, err):
		p.retire(g)
	}
	return err
}

// timedOut reports whether a request failed because there was no response in time. If the caller cancelled it, the state of
// the connection is unknown.
func timedOut(ctx context.Context, err error) bool {
	var timeout net.Error
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}

// setup is the progress of one attempt.
type setup struct {
	state  atomic.Int32
	cancel context.CancelCauseFunc
	// withholds reports whether the request has a body. It is not sent after the attempt has expired.
	withholds bool
}

const (
	connecting int32 = iota
	connected
	expired
	// crossed means that the connection was ready while the attempt expired. A request without a body may have been sent.
	crossed
)

// expire is called by the timer of the attempt.
func (s *setup) expire() {
	if s.state.CompareAndSwap(connecting, expired) {
		s.cancel(errSlowSetup)
	}
}

// gotConn is called immediately before the request is sent.
func (s *setup) gotConn(httptrace.GotConnInfo) {
	if !s.state.CompareAndSwap(connecting, connected) {
		s.state.Store(crossed)
		s.cancel(errSlowSetup)
	}
}

// withheld is the body of a request. It is read only after gotConn. A server does not act on a request without its body.
type withheld struct {
	io.ReadCloser
	setup *setup
}

func (w withheld) Read(p []byte) (int, error) {
	if w.setup.state.Load() > connected {
		return 0, errSlowSetup
	}
	return w.ReadCloser.Read(p)
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	end    func()
	failed func(error) error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.failed(err)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
