package kube

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// Client speaks to one API server.
type Client interface {
	// Kube is the typed client. Unless the configuration names a content type, it uses
	// protobuf, at a fraction of JSON's cost.
	Kube() kubernetes.Interface
	// Dynamic is the client for kinds that are not compiled in.
	Dynamic() dynamic.Interface
	// RESTConfig is a copy of the configuration that the client was made of, its
	// options applied. What is made of it passes the same transport, gates included, and
	// waits for the same rate limiter.
	RESTConfig() *rest.Config
}

type client struct {
	config *rest.Config
	http   *http.Client
	base   http.RoundTripper // below everything that wraps it: what has the connections
	// fresh takes the connections over, nil where they are the user's; wraps are the wrappers
	// that the user gave.
	fresh   *freshener
	wraps   transport.WrapperFunc
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

// NewClient makes a client from a configuration, which it copies. It sends nothing: an
// API server that is away shows only later. An error means that the configuration or
// an option is wrong, or that a file that it names cannot be read.
//
// Its connections are as FreshConnections says.
func NewClient(config *rest.Config, opts ...Option) (Client, error) {
	if config == nil {
		return nil, errors.New("making a client: no configuration was given")
	}
	c := &client{config: rest.CopyConfig(config)}
	for _, apply := range opts {
		if err := apply(c.config); err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
		}
	}
	// The wrappers that were there are kept apart, for connect.
	c.wraps = c.config.WrapTransport
	if c.config.Transport == nil {
		c.fresh = newFreshener()
		c.config.WrapTransport = transport.Wrappers(c.fresh.wrap, c.wraps)
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return c, nil
}

// Derive makes a further client for the same API server with other limits or a further
// transport. Gates of the first one's transport are part of the new one's: to be free
// of a gate, derive from the client that has none. Unless it is given a limit, the two share
// the first one's. One that is InMemory has no transport
// that an option could change: it is returned as it is.
func Derive(from Client, opts ...Option) (Client, error) {
	if from == nil {
		return nil, errors.New("deriving a client: no client was given")
	}
	if InMemory(from) {
		return from, nil
	}
	return NewClient(from.RESTConfig(), opts...)
}

// InMemory reports whether there is no server behind a client, as with client-go's fake
// clientsets, which unit tests use. Those have no REST client.
func InMemory(c Client) bool {
	if c == nil || c.Kube() == nil {
		return false
	}
	below, ok := c.Kube().CoreV1().RESTClient().(*rest.RESTClient)
	return ok && below == nil
}

// CloseIdleConnections closes the connections of a client, and those of all that were derived
// from it: at once where no request is using them, and otherwise when the requests that do
// have ended. A later request opens a new one.
func CloseIdleConnections(c Client) {
	own, ok := c.(*client)
	if !ok {
		return
	}
	closeIdle(own.base)
	if own.fresh != nil {
		own.fresh.closeIdle()
	}
}

// closeIdle looks for what has connections. client-go's function for it writes a warning
// to the log when it meets a transport of the user's that it cannot look into; that one
// then has connections of its own, or none.
func closeIdle(transport http.RoundTripper) {
	switch t := transport.(type) {
	case interface{ CloseIdleConnections() }:
		t.CloseIdleConnections()
	case interface{ WrappedRoundTripper() http.RoundTripper }:
		closeIdle(t.WrappedRoundTripper())
	}
}

// limit gives the configuration a limiter, if it has a limit and none yet: what is derived from
// the client, and what is made of its configuration, has that one, too.
func (c *client) limit() error {
	qps, burst := c.config.QPS, c.config.Burst
	if qps == 0 {
		qps, burst = rest.DefaultQPS, rest.DefaultBurst
	}
	if qps < 0 || c.config.RateLimiter != nil {
		return nil
	}
	if burst <= 0 {
		return fmt.Errorf("a limit of %v requests/s needs a burst of at least 1, not %d", qps, burst)
	}
	c.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	return nil
}

// connect makes the clients over one transport.
func (c *client) connect() error {
	if err := c.limit(); err != nil {
		return err
	}
	config := rest.CopyConfig(c.config)
	// What wraps the transport need not let anyone look below it, so it is kept here.
	var fresh transport.WrapperFunc
	if c.fresh != nil {
		fresh = c.fresh.wrap
	}
	config.WrapTransport = transport.Wrappers(fresh, func(base http.RoundTripper) http.RoundTripper {
		c.base = base
		return base
	}, c.wraps)
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("the transport: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return fmt.Errorf("the dynamic client: %w", err)
	}
	if c.kube, err = kubernetes.NewForConfigAndClient(config, c.http); err != nil {
		return fmt.Errorf("the typed client: %w", err)
	}
	return nil
}

func (c *client) Kube() kubernetes.Interface { return c.kube }

func (c *client) Dynamic() dynamic.Interface { return c.dynamic }

func (c *client) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }
