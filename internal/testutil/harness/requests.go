package harness

import (
	"fmt"
	"net/http"
)

// RoundTripper is a function that implements http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Requests returns a function that wraps a transport. The transport logs the method, the path and the status of each request
// when it ends.
func Requests(log *Log) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return logged{next, log} }
}

type logged struct {
	next http.RoundTripper
	log  *Log
}

// RoundTrip sends and logs a request.
func (l logged) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(req)
	status := ""
	if err == nil {
		status = response.Status
	}
	fmt.Fprintln(l.log, req.Method, req.URL.Path, status)
	return response, err
}

// WrappedRoundTripper returns the wrapped transport, so that client-go can close its connections.
func (l logged) WrappedRoundTripper() http.RoundTripper { return l.next }
