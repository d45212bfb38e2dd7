package kube

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"weak"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// FreshConnections derives a configuration whose clients do not go on with a connection on
// which a request has timed out. NewClient does so by itself; this is for clients that are
// made otherwise, such as for an elector alone.
//
// A request that was sent and not answered before the deadline of its context takes its
// connection out of use: later ones get another, while other requests that are under way on it
// go on. Watches, and logs that are followed, have connections of their own. An HTTP/2
// connection on which nothing was read for 5 s is pinged, and closed, with all that waits on
// it, if there is no answer within another 5 s. An attempt to connect that takes more than
// 250 ms is raced by another, and so on with longer and longer times; no write is sent twice
// for that.
//
// TLS settings, client certificates, the dialer and the proxy are those of the configuration,
// with the reloading that they do. A configuration with a Transport of its own keeps that, and
// none of this applies to it.
func FreshConnections(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.WrapTransport = transport.Wrappers(newFreshener().wrap, config.WrapTransport)
	return config
}

// freshener puts connections in the place of those that client-go would use: the same for
// each client of a configuration and of its copies, as long as the copies connect alike.
type freshener struct {
	mu   sync.Mutex
	made *connections
	// all are those of every client of the configuration and of what was derived from it, as
	// long as there is such a client.
	all []weak.Pointer[pools]
}

func newFreshener() *freshener { return &freshener{} }

// wrap has to be the innermost of a configuration's wrappers: what it is given is thrown
// away but for its settings.
func (f *freshener) wrap(next http.RoundTripper) http.RoundTripper {
	c, ok := next.(*connections)
	if !ok {
		// client-go makes one transport of equal settings, so that it tells them apart.
		if c = newConnections(next); c == nil {
			return next
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.made == nil:
		f.made = c
	case f.made.base == c.base:
		c.pools = f.made.pools
	}
	f.all = slices.DeleteFunc(f.all, func(p weak.Pointer[pools]) bool { return p.Value() == nil || p.Value() == c.pools })
	f.all = append(f.all, weak.Make(c.pools))
	return c
}

// closeIdle is CloseIdleConnections for all of them.
func (f *freshener) closeIdle() {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, p := range all {
		if there := p.Value(); there != nil {
			there.CloseIdleConnections()
		}
	}
}

// connections is a round tripper.
type connections struct {
	base http.RoundTripper
	*pools
}

// pools are the connections for requests that are answered at once, and for streams.
type pools struct{ calls, streams pool }

func newConnections(base http.RoundTripper) *connections {
	like := modelOf(base)
	if like == nil {
		return nil
	}
	return &connections{base: base, pools: &pools{
		calls:   pool{like: like},
		streams: pool{like: like, streams: true},
	}}
}

// WrappedRoundTripper lets client-go find the TLS settings.
func (c *connections) WrappedRoundTripper() http.RoundTripper { return c.base }

// CloseIdleConnections closes those that no request is using, and the others after their
// last request.
func (p *pools) CloseIdleConnections() {
	p.calls.closeIdle()
	p.streams.closeIdle()
}

// RoundTrip sends a request.
func (c *connections) RoundTrip(req *http.Request) (*http.Response, error) {
	if isStream(req) {
		return c.streams.roundTrip(req)
	}
	return c.calls.roundTrip(req)
}

// isStream reports whether the answer is one that goes on.
func isStream(req *http.Request) bool {
	query := req.URL.Query()
	isTrue := func(s string) bool { return s == "true" || s == "1" }
	return req.Method == http.MethodGet && (isTrue(query.Get("watch")) || isTrue(query.Get("follow")))
}

// model is the transport with the settings that are to be used. It changes when client-go
// reloads a CA.
type model interface {
	settings() *http.Transport
	// refresh has client-go look for a CA that has changed, if it is time to.
	refresh(ctx context.Context)
}

// holders are client-go's round trippers around a bare transport. What is around a
// transport otherwise does something with requests and has to stay.
var holders = []string{"*transport.trackedTransport", "*transport.atomicTransportHolder"}

// modelOf is nil for what client-go did not make.
func modelOf(base http.RoundTripper) model {
	if t, ok := base.(*http.Transport); ok {
		return fixed{t}
	}
	held := held{top: base}
	for slices.Contains(holders, reflect.TypeOf(base).String()) {
		holder, ok := base.(interface{ WrappedRoundTripper() http.RoundTripper })
		if !ok {
			return nil
		}
		held.last, base = holder, holder.WrappedRoundTripper()
		if _, ok := base.(*http.Transport); ok {
			return held
		}
	}
	return nil
}

type fixed struct{ *http.Transport }

func (f fixed) settings() *http.Transport { return f.Transport }
func (fixed) refresh(context.Context)     {}

type held struct {
	top  http.RoundTripper
	last interface{ WrappedRoundTripper() http.RoundTripper }
}

func (h held) settings() *http.Transport {
	t, _ := h.last.WrappedRoundTripper().(*http.Transport) // it was, and only its settings change
	return t
}

// refresh sends a request that has ended before it began: client-go looks for a new CA in
// the course of requests only.
func (h held) refresh(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "localhost"}, Header: http.Header{}}
	if resp, err := h.top.RoundTrip(req.WithContext(ctx)); err == nil {
		_ = resp.Body.Close()
	}
}
