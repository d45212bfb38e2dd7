package kube

import (
	"errors"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Option changes the client's copy of the configuration.
type Option func(*rest.Config) error

// WithRateLimit limits the client to qps requests per second on average, with bursts of burst requests. The typed and the dynamic
// client share the limit. A negative qps means no limit. Without this option the limit of the configuration applies, or
// client-go's default of 5 and 10.
func WithRateLimit(qps float32, burst int) Option {
	return func(config *rest.Config) error {
		if qps == 0 {
			return errors.New("a limit of 0 requests/s stops all requests: use a positive number, or a negative number for no limit")
		}
		config.QPS = qps
		config.Burst = burst
		config.RateLimiter = nil
		return nil
	}
}

// WithWrapTransport adds a round tripper that wraps the transport, for example to reject writes or to count requests. It receives
// requests before the wrappers that were added earlier.
func WithWrapTransport(wrap transport.WrapperFunc) Option {
	return func(config *rest.Config) error {
		if wrap == nil {
			return errors.New("the wrapper of the transport is nil")
		}
		config.Wrap(wrap)
		return nil
	}
}

// WithUserAgent sets the user agent of the requests.
func WithUserAgent(name string) Option {
	return func(config *rest.Config) error {
		config.UserAgent = name
		return nil
	}
}

// dialTimeout and dialKeepAlive have the values of client-go.
const (
	dialTimeout   = 30 * time.Second
	dialKeepAlive = 30 * time.Second
)

// WithOwnConnections gives the client separate TCP connections. By default a client shares the connections of the client that it
// is derived from, so a large response or a stalled stream delays the requests of both. Clients derived from a client with
// separate connections or with a custom dialer have separate connections too.
func WithOwnConnections() Option {
	return func(config *rest.Config) error {
		if config.Dial != nil || config.Transport != nil {
			return nil
		}
		// client-go shares transports with equal settings. Two dialers are never equal.
		config.Dial = newDialer().DialContext
		return nil
	}
}

func newDialer() *net.Dialer { return &net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive} }
