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

// WithFinishedWrites waits for the answer of a write that was sent, for up to limit,
// even when its context ends. Giving up on a request does not undo it: the server may
// carry it out a moment later, when its sender counts as having stopped. A request that
// waits for the rate limiter is not sent yet and still ends with its context. An election's gate waits
// for such writes as well, before the lock is released, but hides their answers from the caller whose context
// has ended; and work that runs without elections has no gate.
//
// Transports that are put around this one later, by a further WithWrapTransport, see
// the context that ends; those already there see one that does not.
func WithFinishedWrites(limit time.Duration) Option {
	return func(config *rest.Config) error {
		if limit <= 0 {
			return errors.New("the limit for writes to finish in is not positive")
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
			_ = req.Body.Close() // a round tripper closes it in any case
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), f.limit)
	sent := req.WithContext(ctx)
	sent.Cancel = nil //nolint:staticcheck // by it the time-out of an http.Client would end the write all the same
	resp, err := f.next.RoundTrip(sent)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &finishedBody{ReadCloser: resp.Body, cancel: sync.OnceFunc(cancel)}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (f finishing) WrappedRoundTripper() http.RoundTripper { return f.next }

// finishedBody ends the context when the answer has been read.
type finishedBody struct {
	io.ReadCloser
	cancel func()
}

func (b *finishedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
