package kube

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"weak"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// FreshConnections returns a copy of the configuration. Its clients do not reuse a connection on which a request has timed out.
// NewClient applies it. Use it for clients that are made in another way, for example for an elector alone.
//
// If a request gets no response before the deadline of its context, later requests use another connection. Other requests on the
// old connection continue. Watches and followed logs have separate connections. An HTTP/2 connection without data for 3 s is
// pinged. It is closed, and its requests fail, if there is no response within another 8 s. If the set-up of a connection takes
// longer than 250 ms, a second one starts, and so on with increasing intervals. At most two are being set up at a time, and at most
// 35 in a minute without success. A set-up continues if its request ends. With a proxy this applies to the connection to the proxy.
//
// TLS settings, client certificates, dialer and proxy of the configuration apply, including their reloading. A configuration with
// its own Transport keeps it, and nothing of this applies.
func FreshConnections(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.Transport != nil {
		return config
	}
	config.WrapTransport = transport.Wrappers(newFreshener().wrap, config.WrapTransport)
	return config
}

// freshener replaces the connections of client-go. Clients of a configuration and of its copies share them if the copies have
// the same connection settings.
type freshener struct {
	mu   sync.Mutex
	made *connections
	// all has the pools of each existing client of the configuration and of configurations derived from it.
	all []weak.Pointer[pools]
}

func newFreshener() *freshener { return &freshener{} }

// wrap returns a round tripper with the settings of next, which is not used otherwise. It must be the innermost wrapper of a
// configuration.
func (f *freshener) wrap(next http.RoundTripper) http.RoundTripper {
	c, ok := next.(*connections)
	if !ok {
		// client-go makes one transport for equal settings, so equal transports have equal settings.
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

// closeIdle closes the idle connections of all clients.
func (f *freshener) closeIdle() {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, p := range all {
		if existing := p.Value(); existing != nil {
			existing.CloseIdleConnections()
		}
	}
}

// connections is a round tripper that uses pools.
type connections struct {
	base http.RoundTripper
	*pools
}

// pools has the connections for calls and for streams.
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

// WrappedRoundTripper gives client-go access to the TLS settings.
func (c *connections) WrappedRoundTripper() http.RoundTripper { return c.base }

// CloseIdleConnections closes unused connections now, and the others after their last request.
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

// isStream reports whether the response is a watch or a followed log.
func isStream(req *http.Request) bool {
	query := req.URL.Query()
	isTrue := func(s string) bool { return s == "true" || s == "1" }
	return req.Method == http.MethodGet && (isTrue(query.Get("watch")) || isTrue(query.Get("follow")))
}

// model provides the transport whose settings apply. client-go replaces that transport when it reloads a CA.
type model interface {
	settings() *http.Transport
	// refresh lets client-go check for a changed CA.
	refresh(ctx context.Context)
}

// modelOf returns nil if the round tripper gives no access to an http.Transport. Wrappers of the caller come later, so each wrapper
// here is client-go's and changes no request.
func modelOf(base http.RoundTripper) model {
	if t, ok := base.(*http.Transport); ok {
		return fixed{t}
	}
	held := held{top: base}
	for {
		holder, ok := base.(utilnet.RoundTripperWrapper)
		if !ok {
			return nil
		}
		held.last, base = holder, holder.WrappedRoundTripper()
		if _, ok := base.(*http.Transport); ok {
			return held
		}
	}
}

type fixed struct{ *http.Transport }

func (f fixed) settings() *http.Transport { return f.Transport }
func (fixed) refresh(context.Context)     {}

type held struct {
	top  http.RoundTripper
	last utilnet.RoundTripperWrapper
}

func (h held) settings() *http.Transport {
	t, _ := h.last.WrappedRoundTripper().(*http.Transport) // modelOf checked the type, and client-go changes only settings
	return t
}

// refresh sends a cancelled request, because client-go checks for a new CA only during requests.
func (h held) refresh(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "localhost"}, Header: http.Header{}}
	if resp, err := h.top.RoundTrip(req.WithContext(ctx)); err == nil {
		_ = resp.Body.Close()
	}
}
