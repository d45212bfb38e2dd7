package gate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errBroken = errors.New("broken")
	errGaveUp = errors.New("gave up")
)

// newGate returns a closed gate and its clock.
func newGate() (*gate.Gate, *le.Clock) {
	epoch := time.Now()
	clock := le.NewClock(func() int64 { return int64(time.Since(epoch)) })
	return gate.New("istio-leader", clock), clock
}

// openGate returns a gate that is open in term 7.
func openGate(validity time.Duration) *gate.Gate {
	g, clock := newGate()
	g.Set(le.Term{Token: 7}, clock.Now().Plus(validity))
	return g
}

type roundTripper = harness.RoundTripper

// server responds to each request after a delay, or with an error when its context ends.
type server struct{ takes time.Duration }

func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.takes):
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	case <-req.Cancel: //nolint:staticcheck // an http.Client with a timeout closes it
		return nil, context.DeadlineExceeded
	}
}

// body counts how often it was closed, and can fail.
type body struct {
	io.Reader
	closed        int
	onRead, onEnd error
}

func (b *body) Read(p []byte) (int, error) {
	if b.onRead != nil {
		return 0, b.onRead
	}
	return b.Reader.Read(p)
}

func (b *body) Close() error {
	b.closed++
	return b.onEnd
}

// answering responds to each request immediately.
func answering(status int, b *body) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: b, Request: req}, nil
	})
}

func requestOf(ctx context.Context, t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, body)
	harness.Must(t, err)
	return req
}

// write returns a request that the gate must admit.
func write(ctx context.Context, t *testing.T) *http.Request {
	t.Helper()
	return requestOf(ctx, t, http.MethodPost, "/api/v1/namespaces/a/configmaps", strings.NewReader("{}"))
}

// send sends a request through the gate to next, and closes the body of the response.
func send(g *gate.Gate, next http.RoundTripper, req *http.Request) error {
	resp, err := g.Transport(next).RoundTrip(req)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}
