package kube

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
	// quietConnection is how long nothing may be read on a connection before it is pinged,
	// and signOfLife how long the answer may take. Nothing that waits on a dead connection
	// waits for longer than the two together.
	quietConnection, signOfLife = 5 * time.Second, 5 * time.Second
	// unwritable is how long a connection may take nothing.
	unwritable = 10 * time.Second
	// firstSetup is how long a connection may take to be set up before it is raced by
	// another; each further one is given twice as long, the last one what the dialer gives.
	firstSetup, lastSetup = 250 * time.Millisecond, 4 * time.Second
	// streamBegins is how long a stream may take to begin.
	streamBegins = 30 * time.Second
)

// pool is connections for one kind of request: those of the present generation.
type pool struct {
	like    model
	streams bool

	mu      sync.Mutex
	present *generation
}

// generation is the connections that requests share until one of them times out.
type generation struct {
	*http.Transport
	like *http.Transport

	mu      sync.Mutex
	used    int // by so many requests
	retired bool
	open    map[*connection]struct{}
}

// take has to be followed by leave.
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
	// What is set up for HTTP/2, by client-go or by Clone, belongs to that transport's connections.
	_, http2 := like.TLSNextProto["h2"]
	g.TLSNextProto, g.ForceAttemptHTTP2 = nil, http2
	g.HTTP2 = &http.HTTP2Config{SendPingTimeout: quietConnection, PingTimeout: signOfLife, WriteByteTimeout: unwritable}
	if p.streams {
		g.ResponseHeaderTimeout = streamBegins
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

// retire takes a generation out of use.
func (p *pool) retire(g *generation) {
	p.mu.Lock()
	if p.present == g {
		p.present = nil
	}
	p.mu.Unlock()
	g.retire()
}

// closeIdle closes what no request is using, and the rest as soon as its requests have ended:
// an HTTP/2 connection counts as idle only a moment after its last request, and would stay.
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

// closeUnused closes the connections of a retired generation that no request uses any more.
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

// connection is one that its generation knows of while it is open.
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
	// errSlowSetup ends a try for which there was no connection yet.
	errSlowSetup = errors.New("setting up a connection takes long")
	errCrossed   = errors.New("the connection was there too late")
)

// roundTrip tries again while a connection is being set up: what is set up already goes on,
// and the first that is ready is used.
func (p *pool) roundTrip(req *http.Request) (*http.Response, error) {
	for patience := firstSetup; ; patience *= 2 {
		next := again(req)
		if patience > lastSetup || next == nil {
			patience = 0
		}
		resp, err := p.try(req, patience)
		if !mayGoAgain(req.Method, err) {
			return resp, err
		}
		req = next
	}
}

// mayGoAgain reports whether a request was not sent, or does no harm if it was.
func mayGoAgain(method string, err error) bool {
	isRead := method == http.MethodGet || method == http.MethodHead
	return errors.Is(err, errSlowSetup) || isRead && errors.Is(err, errCrossed)
}

// again is the same request with a body that was not read; nil if there is none.
func again(req *http.Request) *http.Request {
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

// try is one request. With a patience it ends with errSlowSetup when that is over and no
// connection is there: nothing was sent then.
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
		timer := time.AfterFunc(patience, setup.giveUp)
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
	if resp.StatusCode != http.StatusSwitchingProtocols { // which is a connection for its caller
		resp.Body = &body{ReadCloser: resp.Body, end: end, failed: func(err error) error {
			return p.failed(g, caller, setup, err)
		}}
	}
	return resp, nil
}

// failed retires the generation whose connection did not answer in time.
func (p *pool) failed(g *generation, ctx context.Context, setup *setup, err error) error {
	switch {
	case ctx.Err() != nil && setup.state.Load() > connected: // err would say that the set-up was slow
		return context.Cause(ctx)
	case setup.state.Load() == crossed && setup.withholds:
		return errSlowSetup // whatever was sent of it, its body was not
	case setup.state.Load() == crossed:
		return errCrossed
	case setup.state.Load() == connected && timedOut(ctx, err):
		p.retire(g)
	}
	return err
}

// timedOut reports whether a request failed because there was no answer in time. That its
// caller has cancelled it says nothing of the connection.
func timedOut(ctx context.Context, err error) bool {
	var timeout net.Error
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}

// setup is how far a request has come.
type setup struct {
	state  atomic.Int32
	cancel context.CancelCauseFunc
	// withholds: the request has a body, which is not given away once the try was given up.
	withholds bool
}

const (
	connecting int32 = iota
	connected
	gaveUp
	// crossed: the connection came while it was being given up. A request without a body may
	// have been sent.
	crossed
)

// giveUp is the timer's.
func (s *setup) giveUp() {
	if s.state.CompareAndSwap(connecting, gaveUp) {
		s.cancel(errSlowSetup)
	}
}

// gotConn comes right before the request is sent.
func (s *setup) gotConn(httptrace.GotConnInfo) {
	if !s.state.CompareAndSwap(connecting, connected) {
		s.state.Store(crossed)
		s.cancel(errSlowSetup)
	}
}

// withheld is the body of a request, without which no server acts on it. It is read after gotConn alone.
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

// body is an answer that is being read.
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
