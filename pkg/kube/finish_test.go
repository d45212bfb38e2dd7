package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// answer is a response whose body ends with the context of its request, as in net/http.
type answer struct {
	ctx    context.Context
	closed *bool
}

func (a answer) Read([]byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

func (a answer) Close() error {
	*a.closed = true
	return nil
}

// These requests do not reach the transport through client-go.
func TestFinishedWrites_Methods(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"} {
		t.Run(method, func(t *testing.T) {
			read := method == "GET" || method == "HEAD"
			var sent []context.Context
			var cancelable, answered bool
			config := &rest.Config{}
			config.Wrap(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					sent = append(sent, req.Context())
					cancelable = req.Cancel != nil //nolint:staticcheck // the Timeout of a rest.Config uses it
					return &http.Response{StatusCode: http.StatusOK, Body: answer{req.Context(), &answered}}, nil
				})
			})
			harness.Must(t, WithFinishedWrites(time.Minute)(config))
			rt := config.WrapTransport(nil)
			request := func(ctx context.Context) (*http.Request, *bool) {
				closed := new(bool)
				req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:1", answer{t.Context(), closed})
				harness.Must(t, err)
				req.Cancel = make(chan struct{}) //nolint:staticcheck // see above
				return req, closed
			}

			ctx, cancel := context.WithCancel(t.Context())
			req, _ := request(ctx)
			resp, err := rt.RoundTrip(req)
			harness.Must(t, err)
			cancel()
			if _, err := io.ReadAll(resp.Body); (err != nil) != read {
				t.Errorf("reading the answer after the end of the context: %v", err)
			}
			if err := resp.Body.Close(); err != nil || !answered {
				t.Errorf("the answer's body is closed: %v, %v", answered, err)
			}
			if sent[0].Err() == nil {
				t.Error("the request's context outlives the answer")
			}
			if cancelable != read {
				t.Errorf("the timeout of the client ends the request: %v", cancelable)
			}

			req, closed := request(ctx)
			resp, err = rt.RoundTrip(req)
			if read {
				_ = resp.Body.Close()
				return // the transport below rejects it
			}
			if !errors.Is(err, context.Canceled) || len(sent) != 1 || !*closed {
				t.Errorf("a write whose context had ended: error %v, sent %d times, its body closed: %v", err, len(sent)-1, *closed)
			}
		})
	}
	if err := WithFinishedWrites(0)(&rest.Config{}); err == nil {
		t.Error("a limit of nothing was taken")
	}
}

func TestFinishedWrites_Errors(t *testing.T) {
	var sent context.Context
	f := finishing{roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Context()
		return nil, errRecorded
	}), time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://127.0.0.1:1", nil)
	harness.Must(t, err)
	if _, err := f.RoundTrip(req); !errors.Is(err, errRecorded) || sent.Err() == nil {
		t.Errorf("%v; its context ended with %v", err, sent.Err())
	}
	cancel()
	sent = nil
	if _, err := f.RoundTrip(req); !errors.Is(err, context.Canceled) || sent != nil {
		t.Errorf("after the end of its context: %v", err)
	}
	body := endedBody{ReadCloser: &content{}, end: func() {}}
	if err := body.Close(); !errors.Is(err, errClosing) {
		t.Errorf("closing the answer: %v", err)
	}
}
