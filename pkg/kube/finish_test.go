package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
			var answered bool
			config := &rest.Config{}
			config.Wrap(func(http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					sent = append(sent, req.Context())
					return &http.Response{StatusCode: http.StatusOK, Body: answer{req.Context(), &answered}}, nil
				})
			})
			if err := WithFinishedWrites(time.Minute)(config); err != nil {
				t.Fatal(err)
			}
			rt := config.WrapTransport(nil)
			request := func(ctx context.Context) (*http.Request, *bool) {
				closed := new(bool)
				req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:1", answer{t.Context(), closed})
				if err != nil {
					t.Fatal(err)
				}
				return req, closed
			}

			ctx, cancel := context.WithCancel(t.Context())
			req, _ := request(ctx)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
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

// rest.Config.Timeout ends requests by a channel, not by the context.
func TestFinishedWrites_ClientTimeout(t *testing.T) {
	arrived, release, cut := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		select {
		case <-r.Context().Done():
			cut <- true
		case <-release:
			cut <- false
		}
	}))
	defer api.Close()
	c, err := NewClient(&rest.Config{Host: api.URL, Timeout: 50 * time.Millisecond}, WithFinishedWrites(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer CloseIdleConnections(c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Kube().CoreV1().Namespaces().Delete(t.Context(), "a", metav1.DeleteOptions{})
	}()
	<-arrived
	timeout := time.NewTimer(200 * time.Millisecond) // longer than the timeout of the client
	defer timeout.Stop()
	select {
	case <-cut:
		t.Error("the write was cut")
	case <-timeout.C:
		close(release)
		if <-cut {
			t.Error("the write was cut")
		}
	}
	<-ended
}

func TestFinishedWrites_Errors(t *testing.T) {
	var sent context.Context
	f := finishing{roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = req.Context()
		return nil, errRecorded
	}), time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.RoundTrip(req); !errors.Is(err, errRecorded) || sent.Err() == nil {
		t.Errorf("%v; its context ended with %v", err, sent.Err())
	}
	cancel()
	sent = nil
	if _, err := f.RoundTrip(req); !errors.Is(err, context.Canceled) || sent != nil {
		t.Errorf("after the end of its context: %v", err)
	}
	body := &finishedBody{ReadCloser: &content{}, cancel: func() {}}
	if err := body.Close(); !errors.Is(err, errClosing) {
		t.Errorf("closing the answer: %v", err)
	}
}
