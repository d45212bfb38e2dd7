package elections

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
)

// transport counts the requests of a process. It can drop them.
type transport struct {
	cut atomic.Bool
	// renewed counts the PUT requests that succeeded.
	renewed atomic.Int64

	mu       sync.Mutex
	requests map[string]int // by method; WATCH of one object, WATCH ALL of a namespace
}

func newTransport() *transport {
	return &transport{requests: map[string]int{}}
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
	resp, err := next.RoundTrip(req)
	if err == nil && kind == http.MethodPut && resp.StatusCode == http.StatusOK {
		tr.renewed.Add(1)
	}
	return resp, err
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
