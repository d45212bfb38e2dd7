package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// connect returns a client without a rate limit and with its own connections, which kube.CloseIdleConnections closes.
func connect(config *rest.Config) (kube.Client, error) {
	return kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
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
