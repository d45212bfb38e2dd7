package ctl

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/atomic"
)

// serverClock is the Date of the API server's last response, in whole seconds.
type serverClock struct{ seconds atomic.Int64 }

// now returns the time of the last response.
func (s *serverClock) now() time.Time { return time.Unix(s.seconds.Load(), 0) }

// dated records the Date of each response.
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

// serverTime returns the time of the API server.
func (c *clients) serverTime(ctx context.Context) (time.Time, error) {
	_, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	return c.clock.now(), err
}
