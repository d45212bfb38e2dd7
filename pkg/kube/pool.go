package kube

// net/http.Transport keeps using a connection on which a request timed out. The pool in this file replaces such connections.

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
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		p.like.refresh(ctx)
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			// When this process ends, the kernel discards the bytes that it has not sent. Otherwise a write could arrive after a
			// witness has released the lock.
			_ = tcp.SetLinger(0)
		}
		return g.opened(conn), nil
	}
	g.DialContext = raced(connect)
	g.DialTLSContext = raced(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return g.secure(ctx, conn, address)
	})
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

// roundTrip sends a request on a connection of the current generation.
func (p *pool) roundTrip(req *http.Request) (*http.Response, error) {
	caller := req.Context()
	g := p.take()
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	failed := func(err error) {
		if connected.Load() && timedOut(caller, err) {
			p.retire(g)
		}
	}
	resp, err := g.RoundTrip(req.WithContext(httptrace.WithClientTrace(caller, trace)))
	if err != nil {
		failed(err)
		g.leave()
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols { // then the caller uses the body as a connection
		resp.Body = body{endedBody{resp.Body, sync.OnceFunc(g.leave)}, failed}
	}
	return resp, nil
}

// timedOut reports whether a request failed because there was no response in time. If the caller cancelled it, the state of
// the connection is unknown.
func timedOut(ctx context.Context, err error) bool {
	var timeout net.Error
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}

// body is the body of a response.
type body struct {
	endedBody
	failed func(error)
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed(err)
	}
	return n, err
}
