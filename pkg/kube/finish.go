package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// WithFinishedWrites lets a write that was sent finish within limit, even if its context ends. Otherwise the server may execute
// the write after its sender counts as stopped. A request that waits for the rate limiter is not sent yet and ends with its
// context. The gate of an election also waits for such writes before the lock is released. It does not return their responses
// to a caller whose context has ended, and programs without elections have no gate.
//
// Wrappers that are added later see the context that ends. Wrappers that were added before see a context that does not end.
func WithFinishedWrites(limit time.Duration) Option {
	return func(config *rest.Config) error {
		if limit <= 0 {
			return errors.New("the limit for finishing writes must be positive")
		}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return finishing{next, limit} })
		return nil
	}
}

type finishing struct {
	next  http.RoundTripper
	limit time.Duration
}

func (f finishing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return f.next.RoundTrip(req)
	}
	if err := req.Context().Err(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // RoundTrip must close the body
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), f.limit)
	sent := req.WithContext(ctx)
	sent.Cancel = nil //nolint:staticcheck // http.Client uses it for its timeout, which would end the write
	resp, err := f.next.RoundTrip(sent)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = endedBody{resp.Body, sync.OnceFunc(cancel)}
	return resp, nil
}

// WrappedRoundTripper returns the wrapped transport to client-go.
func (f finishing) WrappedRoundTripper() http.RoundTripper { return f.next }

// endedBody calls end when the caller has read the response.
type endedBody struct {
	io.ReadCloser
	end func()
}

func (b endedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
