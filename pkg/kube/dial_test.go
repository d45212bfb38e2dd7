package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimedOut(t *testing.T) {
	late, stop := context.WithTimeout(t.Context(), -time.Second)
	defer stop()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		caller context.Context
		err    error
		want   bool
	}{
		"its deadline":                   {late, errors.New("any"), true},
		"its deadline, and a time-out":   {late, timeoutError{true}, true},
		"a time-out":                     {t.Context(), fmt.Errorf("get: %w", timeoutError{true}), true},
		"of the system":                  {t.Context(), os.ErrDeadlineExceeded, true},
		"a failure of the net":           {t.Context(), timeoutError{false}, false},
		"another failure":                {t.Context(), io.ErrUnexpectedEOF, false},
		"a cancellation":                 {cancelled, context.Canceled, false},
		"a cancellation, and a time-out": {cancelled, timeoutError{true}, false},
	} {
		if got := timedOut(test.caller, test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Attempts start after 250 ms, then after twice the interval each time, within 8 s.
func TestRaced(t *testing.T) {
	six := []time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond, 3750 * time.Millisecond, 7750 * time.Millisecond}
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		// takes has the duration of each attempt. A negative duration is an attempt that fails. Further attempts hang.
		takes []time.Duration
		tries []time.Duration
		took  time.Duration
		want  error
	}{
		"first is fast":    {[]time.Duration{time.Millisecond}, six[:1], time.Millisecond, nil},
		"first fails":      {[]time.Duration{-time.Millisecond}, six[:1], time.Millisecond, refused},
		"second is faster": {[]time.Duration{time.Second, 100 * time.Millisecond}, six[:2], 350 * time.Millisecond, nil},
		"first is slow":    {[]time.Duration{time.Second, time.Minute, time.Minute}, six[:3], time.Second, nil},
		"second fails":     {[]time.Duration{600 * time.Millisecond, -100 * time.Millisecond}, six[:2], 600 * time.Millisecond, nil},
		"both fail":        {[]time.Duration{-500 * time.Millisecond, -100 * time.Millisecond}, six[:2], 500 * time.Millisecond, refused},
		"none is ready":    {nil, six, time.Hour, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					mu    sync.Mutex
					tries []time.Duration
					conns []*wire
					began = time.Now()
				)
				dial := raced(func(ctx context.Context, _, _ string) (net.Conn, error) {
					mu.Lock()
					n := len(tries)
					tries = append(tries, time.Since(began))
					mu.Unlock()
					takes := 2 * time.Hour
					if n < len(test.takes) {
						takes = test.takes[n]
					}
					time.Sleep(max(takes, -takes)) // does not end with ctx
					if takes < 0 {
						return nil, refused
					}
					mu.Lock()
					defer mu.Unlock()
					conns = append(conns, &wire{})
					return conns[len(conns)-1], nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				conn, err := dial(ctx, "tcp", "a:1")
				if took := time.Since(began); !errors.Is(err, test.want) || took != test.took {
					t.Errorf("after %v: %v; want %v after %v", took, err, test.want, test.took)
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(tries, test.tries) {
					t.Errorf("attempts after %v, want %v", tries, test.tries)
				}
				for i, c := range conns {
					if used := conn == net.Conn(c); used == (c.closed > 0) {
						t.Errorf("connection %d: returned %v, closed %d times", i, used, c.closed)
					}
				}
			})
		})
	}
}
