package kube

// net/http.Transport keeps using a connection on which a request timed out. The pool in this file replaces such connections.

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// pingInterval is the time without data after which a connection is pinged. It is closed after pingTimeout without a
	// response. A request on a dead connection fails after the sum of both. pingTimeout is longer than the answers of an API server
	// may take.
	pingInterval = 3 * time.Second
	pingTimeout  = 8 * time.Second
	// writeTimeout is the longest time that a connection may accept no bytes.
	writeTimeout = 10 * time.Second
	// streamTimeout is the longest time until a stream begins.
	streamTimeout = 30 * time.Second
	// spareTime is how long a spare generation waits for the next second attempt, or three times the time of a set-up, if that is longer.
	// A failure of the network can end the connections of both generations, so an older spare is of no use. It is shorter than the time
	// between two renewals.
	spareTime = time.Second
)

// pool has the connections for one kind of request. New requests use the present generation. The second attempt of a request uses the
// spare generation, because the first attempt may wait on a dead connection.
type pool struct {
	like    model
	streams bool

	mu             sync.Mutex
	present, spare *generation
	setups         map[target]*setups
}

// generation is a set of connections that requests share until a request on one of them times out.
type generation struct {
	*http.Transport
	like *http.Transport

	mu      sync.Mutex
	used    int       // number of requests
	last    time.Time // when the last request began
	retired bool
	open    map[*connection]struct{}
}

// take returns the generation for a request. The caller calls leave when its request has ended.
func (p *pool) take(second bool) *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	like := p.like.settings()
	if p.present != nil && p.present.like != like || p.spare != nil && p.spare.like != like {
		p.clear()
	}
	if !second {
		p.present = p.use(p.present)
		return p.present
	}
	if p.spare != nil && p.spare.isOlder(max(spareTime, 3*p.setupTime())) {
		p.spare.retire()
		p.spare = nil
	}
	p.spare = p.use(p.spare)
	return p.spare
}

// use returns g, or a new generation, for one more request.
func (p *pool) use(g *generation) *generation {
	if g == nil {
		g = p.generation(p.like.settings())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used++
	g.last = time.Now() //nolint:forbidigo // the age of a spare generation
	return g
}

func (g *generation) isOlder(age time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.last) > age //nolint:forbidigo // the age of a spare generation
}

// clear retires all generations. Set-ups that requests wait for continue, and their limits remain. The caller holds mu.
func (p *pool) clear() {
	for _, g := range []*generation{p.present, p.spare} {
		if g != nil {
			g.retire()
		}
	}
	like := p.like.settings()
	maps.DeleteFunc(p.setups, func(t target, s *setups) bool {
		s.closeIdle()
		return t.like != like
	})
	p.present = nil
	p.spare = nil
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
	g.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.to(target{like, false, network, address}, g).get(ctx, g)
	}
	g.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.to(target{like, true, network, address}, g).get(ctx, g)
	}
	return g
}

// to returns the set-ups of connections to a target, with the settings of a generation.
func (p *pool) to(t target, g *generation) *setups {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.setups[t]
	if s == nil {
		s = &setups{connect: func(ctx context.Context) (net.Conn, error) { return p.connect(ctx, t, g) }}
		if p.setups == nil {
			p.setups = map[target]*setups{}
		}
		p.setups[t] = s
	}
	return s
}

// connect sets up one connection.
func (p *pool) connect(ctx context.Context, to target, g *generation) (net.Conn, error) {
	p.like.refresh(ctx)
	dial := g.like.DialContext
	if dial == nil {
		dial = newDialer().DialContext
	}
	conn, err := dial(ctx, to.network, to.address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// When this process ends, the kernel discards the bytes that it has not sent. Otherwise a write could arrive after a
		// witness has released the lock.
		_ = tcp.SetLinger(0)
	}
	conn = &connection{Conn: conn}
	if to.tls {
		return g.secure(ctx, conn, to.address)
	}
	return conn, nil
}

// retire removes a generation: later requests use another one.
func (p *pool) retire(g *generation) {
	p.mu.Lock()
	switch g {
	case p.present:
		p.present = p.spare
		p.spare = nil
	case p.spare:
		p.spare = nil
	}
	p.mu.Unlock()
	g.retire()
}

// closeIdle closes unused connections now, and the others when their requests have ended. An HTTP/2 connection becomes idle
// only some time after its last request, so closing idle connections is not enough.
func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
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

// adopt adds a connection that was set up.
func (g *generation) adopt(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	c.of = g
	g.mu.Lock()
	g.open[c] = struct{}{}
	late := g.retired && g.used == 0
	g.mu.Unlock()
	if late {
		_ = c.Close()
	}
}

// connection is a connection that its generation lists while it is open.
type connection struct {
	net.Conn
	of *generation // nil during the set-up
}

func (c *connection) Close() error {
	if c.of != nil {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
	}
	return c.Conn.Close()
}

// roundTrip sends a request.
func (p *pool) roundTrip(req *http.Request) (*http.Response, error) {
	caller := req.Context()
	g := p.take(apirequest.IsSecond(caller))
	r := newRequest()
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { r.setConnected(false) },
		GotConn: func(httptrace.GotConnInfo) { r.setConnected(true) },
	}
	failed := func(err error) {
		overtaken := errors.Is(context.Cause(caller), apirequest.ErrOvertaken)
		if has, _, _ := r.state(); has && (overtaken || timedOut(caller, err)) {
			p.retire(g)
		}
	}
	ctx := context.WithValue(httptrace.WithClientTrace(caller, trace), requestKey{}, r)
	resp, err := g.RoundTrip(req.WithContext(ctx))
	close(r.ended)
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

// setupTime returns the time that the set-up of a connection takes. The caller holds mu.
func (p *pool) setupTime() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.setups {
		longest = max(longest, s.usual.Longest())
	}
	return longest
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
