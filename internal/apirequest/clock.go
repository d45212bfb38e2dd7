package apirequest

import (
	"net/http"
	"sync"
	"time"
)

// ServerClock is the clock of an API server, from the Date of its last response. A Date has whole seconds. Its methods are safe for
// concurrent use.
type ServerClock struct {
	mu       sync.Mutex
	date     time.Time
	received time.Time
}

// Now returns the time of the API server, or the zero Time before the first response.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.date.IsZero() {
		return time.Time{}
	}
	return c.date.Add(time.Since(c.received)) //nolint:forbidigo // the time since the last response
}

// Wrap returns a transport that records the Date of each response.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper { return dated{next, c} }

type dated struct {
	next  http.RoundTripper
	clock *ServerClock
}

// WrappedRoundTripper returns the wrapped transport, so that client-go can cancel requests and close connections.
func (d dated) WrappedRoundTripper() http.RoundTripper { return d.next }

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		d.clock.mu.Lock()
		d.clock.date = at
		d.clock.received = time.Now() //nolint:forbidigo // see Now
		d.clock.mu.Unlock()
	}
	return answer, nil
}
