package relay

import (
	"context"
	"net/url"

	"k8s.io/client-go/rest"
)

// Insert starts a relay to the API server of a configuration, and makes the configuration use it.
func Insert(ctx context.Context, config *rest.Config) (*Relay, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	r, err := Listen(ctx, server.Host)
	if err != nil {
		return nil, err
	}
	config.Host = "https://" + r.Addr()
	config.ServerName = server.Hostname()
	return r, nil
}
