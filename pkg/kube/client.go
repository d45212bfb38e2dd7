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

// Client has the clients of one API server.
type Client interface {
	// Kube returns the typed client. It uses protobuf unless the configuration names a content type.
	Kube() kubernetes.Interface
	// Dynamic returns the client for kinds without Go types.
	Dynamic() dynamic.Interface
	// RESTConfig returns a copy of the client's configuration, with its options applied. Clients made from it use the same
	// transport, including gates, and the same rate limiter.
	RESTConfig() *rest.Config
}

type client struct {
	config *rest.Config
	base   http.RoundTripper // innermost transport, which has the connections
	// fresh has the connections. It is nil if the configuration has its own transport. wraps are the wrappers of the configuration.
	fresh   *freshener
	wraps   transport.WrapperFunc
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

// NewClient returns a client for a copy of the configuration. It sends no request, so it succeeds if the API server is down. It
// returns an error if the configuration or an option is invalid or a named file cannot be read. It drops warnings about the version of
// LeaseCandidates.
//
// FreshConnections describes the connections of the client.
func NewClient(config *rest.Config, opts ...Option) (Client, error) {
	if config == nil {
		return nil, errors.New("make client: no configuration")
	}
	c := &client{config: rest.CopyConfig(config)}
	for _, apply := range opts {
		if err := apply(c.config); err != nil {
			return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
		}
	}
	dropWarnings(c.config)
	// connect needs the wrappers of the configuration without fresh.
	c.wraps = c.config.WrapTransport
	if c.config.Transport == nil {
		c.fresh = newFreshener()
		c.config.WrapTransport = transport.Wrappers(c.fresh.wrap, c.wraps)
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	return c, nil
}

// Derive returns another client for the same API server, with other limits or another wrapper. It keeps the gates of the first
// client: to have no gate, derive from a client without one. Both clients share one rate limiter unless an option sets another. An
// InMemory client has no transport and is returned unchanged.
func Derive(from Client, opts ...Option) (Client, error) {
	if from == nil {
		return nil, errors.New("derive client: no client")
	}
	if InMemory(from) {
		return from, nil
	}
	return NewClient(from.RESTConfig(), opts...)
}

// InMemory reports whether the client has no server, for example a fake clientset of client-go. Such a clientset has no REST
// client.
func InMemory(c Client) bool {
	if c == nil || c.Kube() == nil {
		return false
	}
	below, ok := c.Kube().CoreV1().RESTClient().(*rest.RESTClient)
	return ok && below == nil
}

// CloseIdleConnections closes the connections of a client and of clients derived from it: unused connections now, the others
// when their requests have ended. A later request opens a new connection.
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

// closeIdle closes the idle connections of the innermost transport that has some. The function of client-go for this logs a
// warning for a transport that it cannot unwrap.
func closeIdle(transport http.RoundTripper) {
	switch t := transport.(type) {
	case interface{ CloseIdleConnections() }:
		t.CloseIdleConnections()
	case interface{ WrappedRoundTripper() http.RoundTripper }:
		closeIdle(t.WrappedRoundTripper())
	}
}

// limit adds a rate limiter to the configuration if it has a limit and no limiter, so that derived clients share it.
func (c *client) limit() error {
	qps, burst := c.config.QPS, c.config.Burst
	if qps == 0 {
		qps, burst = rest.DefaultQPS, rest.DefaultBurst
	}
	if qps < 0 || c.config.RateLimiter != nil {
		return nil
	}
	if burst <= 0 {
		return fmt.Errorf("a limit of %v requests/s needs a burst of at least 1, got %d", qps, burst)
	}
	c.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	return nil
}

// connect makes the typed and the dynamic client with one transport.
func (c *client) connect() error {
	if err := c.limit(); err != nil {
		return err
	}
	config := rest.CopyConfig(c.config)
	// A wrapper may not give access to the transport below it, so the innermost transport is stored here.
	var fresh transport.WrapperFunc
	if c.fresh != nil {
		fresh = c.fresh.wrap
	}
	config.WrapTransport = transport.Wrappers(fresh, func(base http.RoundTripper) http.RoundTripper {
		c.base = base
		return base
	}, c.wraps)
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("the transport: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, shared); err != nil {
		return fmt.Errorf("the dynamic client: %w", err)
	}
	if c.kube, err = kubernetes.NewForConfigAndClient(config, shared); err != nil {
		return fmt.Errorf("the typed client: %w", err)
	}
	return nil
}

func (c *client) Kube() kubernetes.Interface { return c.kube }

func (c *client) Dynamic() dynamic.Interface { return c.dynamic }

func (c *client) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }
