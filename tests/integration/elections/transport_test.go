package elections

import (
	"errors"
	"net/http"
	"sync/atomic"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// transport logs the requests of a process. It can drop them.
type transport struct {
	sent harness.Log
	cut  atomic.Bool
}

func (tr *transport) wrap(next http.RoundTripper) http.RoundTripper {
	return harness.Requests(&tr.sent)(roundTripper(func(req *http.Request) (*http.Response, error) {
		if tr.cut.Load() {
			return nil, errors.New("the test drops the requests of this candidate")
		}
		return next.RoundTrip(req)
	}))
}

// renewed returns the number of PUT requests that succeeded.
func (tr *transport) renewed() int { return tr.sent.Count("PUT ", " 200 OK") }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
