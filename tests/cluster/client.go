package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NewClient returns a client with its own connections. done closes them.
func NewClient(config *rest.Config) (client *kubernetes.Clientset, done func(), err error) {
	config = rest.CopyConfig(config)
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("create client: %w", err)
	}
	client, err = kubernetes.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, nil, fmt.Errorf("create client: %w", err)
	}
	// The client's own method does not unwrap the transports of client-go.
	return client, func() { utilnet.CloseIdleConnectionsFor(http.Transport) }, nil
}

// Healthy returns a function that checks a health endpoint.
func Healthy(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, response.Body.Close()) }()
		if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}
