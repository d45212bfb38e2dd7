package elections

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// transport counts the requests of a process. It can drop them, and delay a handover.
type transport struct {
	cut      atomic.Bool
	delaying atomic.Bool
	release  chan struct{} // closed by the test: the delayed handover is sent
	answered chan int      // its status code
	// renewed counts the PUT requests that succeeded.
	renewed atomic.Int64

	mu       sync.Mutex
	requests map[string]int // by method; WATCH of one object, WATCH ALL of a namespace
}

func newTransport() *transport {
	return &transport{release: make(chan struct{}), answered: make(chan int, 1), requests: map[string]int{}}
}

func (tr *transport) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return tr.roundTrip(next, req) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func (tr *transport) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	kind := req.Method
	if query := req.URL.Query(); query.Get("watch") != "" {
		kind = "WATCH"
		if query.Get("fieldSelector") == "" {
			kind = "WATCH ALL"
		}
	}
	tr.mu.Lock()
	tr.requests[kind]++
	tr.mu.Unlock()
	if tr.cut.Load() {
		return nil, errors.New("the test drops the requests of this candidate")
	}
	if req.Method == http.MethodPut && tr.delaying.Load() {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(k8sresourcelock.NominatedAnnotation)) && tr.delaying.CompareAndSwap(true, false) {
			return tr.delay(next, req, body)
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil && kind == http.MethodPut && resp.StatusCode == http.StatusOK {
		tr.renewed.Add(1)
	}
	return resp, err
}

// delay waits until the sender stops waiting, and sends the request when the test releases it.
func (tr *transport) delay(next http.RoundTripper, req *http.Request, body []byte) (*http.Response, error) {
	<-req.Context().Done()
	go func() {
		<-tr.release
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), waits.Bound)
		defer cancel()
		late := req.Clone(ctx)
		late.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := next.RoundTrip(late)
		if err != nil {
			tr.answered <- 0
			return
		}
		_ = resp.Body.Close()
		tr.answered <- resp.StatusCode
	}()
	return nil, req.Context().Err()
}

// sent returns the number of requests of a kind, or of all kinds if it is empty.
func (tr *transport) sent(kind string) (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if kind != "" {
		return tr.requests[kind]
	}
	for _, k := range tr.requests {
		n += k
	}
	return n
}
