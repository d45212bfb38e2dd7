package ctl

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/atomic"
)

// serverClock is the API server's clock, by the Date of its last answer. It has whole seconds.
type serverClock struct{ seconds atomic.Int64 }

// now is the time of the last answer.
func (s *serverClock) now() time.Time { return time.Unix(s.seconds.Load(), 0) }

// dated notes the Date of each answer.
type dated struct {
	next  http.RoundTripper
	clock *serverClock
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err == nil {
		if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			d.clock.seconds.Store(at.Unix())
		}
	}
	return answer, err
}

// serverTime asks the API server for its time.
func (c *clients) serverTime(ctx context.Context) (time.Time, error) {
	_, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	return c.clock.now(), err
}
