package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
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

// line is one set-up of a test. It ends after takes, with err, or with a connection.
type line struct {
	takes time.Duration
	err   error
}

// lines are the set-ups of a test. Further set-ups hang until their context ends.
type lines struct {
	*setups
	mu      sync.Mutex
	all     []line
	began   time.Time
	started []time.Duration
	running int
	most    int
	made    []*wire
}

func newLines(all ...line) *lines {
	l := &lines{all: all, began: time.Now()}
	l.setups = &setups{connect: l.connect}
	return l
}

func (l *lines) connect(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	n := len(l.started)
	l.started = append(l.started, time.Since(l.began))
	l.running++
	l.most = max(l.most, l.running)
	l.mu.Unlock()
	one := line{takes: time.Hour}
	if n < len(l.all) {
		one = l.all[n]
	}
	err := apirequest.Pause(ctx, one.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	if err = cmp.Or(err, one.err); err != nil {
		return nil, err
	}
	w := &wire{}
	l.made = append(l.made, w)
	return &connection{Conn: w}, nil
}

// get is a request that needs a connection until its context ends.
func (l *lines) request(ctx context.Context, g *generation) (net.Conn, error) {
	r := newRequest()
	stop := context.AfterFunc(ctx, func() { close(r.ended) })
	defer stop()
	return l.get(context.WithValue(context.WithoutCancel(ctx), requestKey{}, r), g)
}

func newGeneration() *generation {
	return &generation{Transport: &http.Transport{}, used: 1, open: map[*connection]struct{}{}}
}

var errRefused = errors.New("refused")

func TestSetups(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		lines []line
		want  []time.Duration // the starts
		took  time.Duration
		err   error
	}{
		"first is fast":                {[]line{{ms, nil}}, []time.Duration{0}, ms, nil},
		"first fails":                  {[]line{{ms, errRefused}}, []time.Duration{0}, ms, errRefused},
		"second is faster":             {[]line{{time.Second, nil}, {100 * ms, nil}}, []time.Duration{0, 250 * ms}, 350 * ms, nil},
		"second fails":                 {[]line{{600 * ms, nil}, {100 * ms, errRefused}}, []time.Duration{0, 250 * ms}, 600 * ms, nil},
		"both fail":                    {[]line{{500 * ms, errRefused}, {100 * ms, errRefused}}, []time.Duration{0, 250 * ms}, 500 * ms, errRefused},
		"first is slow":                {[]line{{4 * time.Second, nil}}, []time.Duration{0, 250 * ms, 750 * ms, 1750 * ms, 3750 * ms}, 4 * time.Second, nil},
		"all others hang":              {[]line{{14 * time.Second, nil}}, starts(14 * time.Second), 14 * time.Second, nil},
		"first of them hangs":          {[]line{{time.Hour, nil}, {time.Hour, nil}, {time.Hour, nil}, {ms, nil}}, starts(2 * time.Second), 1751 * ms, nil},
		"another than the first hangs": {[]line{{time.Second, errRefused}, {time.Hour, nil}, {900 * ms, nil}}, []time.Duration{0, 250 * ms, 750 * ms}, 1650 * ms, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLines(test.lines...)
				g := newGeneration()
				conn, err := l.request(t.Context(), g)
				if took := time.Since(l.began); !errors.Is(err, test.err) || took != test.took || (conn == nil) == (err == nil) {
					t.Errorf("after %v: %v, %v; want %v after %v", took, conn, err, test.err, test.took)
				}
				if !slices.Equal(l.started, test.want) || l.most > 2 {
					t.Errorf("set-ups started after %v, %d at a time; want %v", l.started, l.most, test.want)
				}
				time.Sleep(longestSetup)
				synctest.Wait()
				for _, w := range l.made {
					if used := err == nil && conn.(*connection).Conn == net.Conn(w); used == (w.closed > 0) || g.connections() != 1 {
						t.Errorf("a connection was returned: %v, and closed %d times", used, w.closed)
					}
				}
			})
		})
	}
}

// starts returns when set-ups start that all hang.
func starts(until time.Duration) []time.Duration {
	var all []time.Duration
	interval := firstSetup
	for at := time.Duration(0); at < until; at += interval {
		if interval = min(firstSetup<<len(all), lastSetup); len(all) == 0 {
			interval = firstSetup
		}
		all = append(all, at)
	}
	return all
}

// In every state, a pool starts a bounded number of set-ups, and at most two run.
func TestSetups_Bound(t *testing.T) {
	for name, one := range map[string]line{"hangs": {time.Hour, nil}, "is refused": {0, errRefused}, "fails late": {3 * time.Second, errRefused}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLines(slices.Repeat([]line{one}, 10_000)...)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var requests sync.WaitGroup
			for range 20 { // each request ends after 4 s, and is sent again immediately
				requests.Go(func() {
					for ctx.Err() == nil {
						short, cancel := context.WithTimeout(ctx, 4*time.Second)
						if _, err := l.request(short, newGeneration()); err == nil {
							t.Error("a connection")
						}
						cancel()
					}
				})
			}
			requests.Wait()
			time.Sleep(longestSetup)
			synctest.Wait()
			if n := len(l.started); n > 10*30+5 || l.most > 2 || l.running != 0 {
				t.Errorf("a server that %s: %d set-ups in ten minutes, %d at a time, %d at the end", name, n, l.most, l.running)
			}
		})
	}
}

// A slow set-up is not cancelled with its request. The next request uses the connection.
func TestSetups_BelongToPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(line{5 * time.Second, nil})
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		first := newGeneration()
		go l.request(short, first)
		time.Sleep(3 * time.Second)
		second := newGeneration()
		conn, err := l.request(t.Context(), second)
		if err != nil || time.Since(l.began) != 5*time.Second || conn.(*connection).Conn != net.Conn(l.made[0]) || second.connections() != 1 {
			t.Errorf("after %v: %v, %v", time.Since(l.began), conn, err)
		}
		time.Sleep(longestSetup)
	})
	// If there is no next request, net/http.Transport keeps the connection for later.
	synctest.Test(t, func(t *testing.T) {
		l := newLines(line{5 * time.Second, nil})
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if conn, err := l.request(short, newGeneration()); err != nil || time.Since(l.began) != 5*time.Second || len(l.started) != 1 {
			t.Errorf("after %v: %v, %v, %d set-ups", time.Since(l.began), conn, err, len(l.started))
		}
	})
}

// Requests that use a connection of each alone do not wait for each other's set-up.
func TestSetups_Exclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(slices.Repeat([]line{{10 * time.Millisecond, nil}}, 10)...)
		var requests sync.WaitGroup
		for range 9 {
			requests.Go(func() {
				if _, err := l.request(t.Context(), newGeneration()); err != nil {
					t.Error(err)
				}
			})
		}
		requests.Wait()
		if took := time.Since(l.began); took != 50*time.Millisecond || len(l.started) != 9 {
			t.Errorf("%d set-ups in %v", len(l.started), took)
		}
	})
}

// Closing idle connections ends the set-ups that no request needs.
func TestSetups_CloseIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := l.request(ctx, newGeneration())
			result <- err
		}()
		synctest.Wait()
		l.closeIdle()
		if synctest.Wait(); l.running != 1 {
			t.Errorf("%d set-ups run while a request needs them", l.running)
		}
		cancel()
		synctest.Wait()
		l.closeIdle()
		if synctest.Wait(); l.running != 0 {
			t.Errorf("%d set-ups run", l.running)
		}
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// After idle connections were closed, a pool does not set up more connections than before.
func TestSetups_KeepLimits(t *testing.T) {
	like := &http.Transport{}
	p := &pool{like: fixed{like}}
	g := p.take(false)
	before := p.to(target{like: like}, g)
	before.tries = 3
	p.closeIdle()
	if after := p.to(target{like: like}, p.take(false)); after != before || after.tries != 3 || !g.retired {
		t.Error("the pool has other set-ups")
	}
}
