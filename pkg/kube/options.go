package kube

import (
	"errors"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Option changes the copy of the configuration that a client is made of.
type Option func(*rest.Config) error

// WithRateLimit allows qps requests a second on average and burst at once, over the
// typed and the dynamic client together. A negative qps means no limit. Without this
// option the configuration's own limit holds, or client-go's of 5 and 10.
func WithRateLimit(qps float32, burst int) Option {
	return func(config *rest.Config) error {
		if qps == 0 {
			return errors.New("a limit of 0 requests/s would stop all work: give a positive number, or a negative one for no limit")
		}
		config.QPS, config.Burst, config.RateLimiter = qps, burst, nil
		return nil
	}
}

// WithWrapTransport puts a round tripper around the transport, such as one that refuses
// writes or counts requests. It sees requests before those that were put there earlier.
func WithWrapTransport(wrap transport.WrapperFunc) Option {
	return func(config *rest.Config) error {
		if wrap == nil {
			return errors.New("the function to wrap the transport with is nil")
		}
		config.Wrap(wrap)
		return nil
	}
}

// WithUserAgent sets the name under which the API server logs the requests.
func WithUserAgent(name string) Option {
	return func(config *rest.Config) error {
		config.UserAgent = name
		return nil
	}
}

// Of a connection attempt, as in client-go.
const (
	dialTimeout   = 30 * time.Second
	dialKeepAlive = 30 * time.Second
)

// WithOwnConnections gives the client TCP connections of its own. By default a client
// shares those of the one that it is derived from, where a large answer or a stalled
// stream of one holds up the requests of all. What is derived from a client with
// connections of its own, or with a dialer of the user's, has connections of its own, too.
func WithOwnConnections() Option {
	return func(config *rest.Config) error {
		if config.Dial != nil || config.Transport != nil {
			return nil
		}
		// client-go shares transports whose settings are equal, and a dialer is equal
		// to itself alone.
		config.Dial = newDialer().DialContext
		return nil
	}
}

func newDialer() *net.Dialer { return &net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive} }
