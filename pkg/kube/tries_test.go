package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
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

func TestSetup_States(t *testing.T) {
	for name, test := range map[string]struct {
		do    func(*setup)
		state int32
		ended bool
	}{
		"connected":                {func(s *setup) { s.gotConn(httptrace.GotConnInfo{}) }, connected, false},
		"given up":                 {(*setup).expire, expired, true},
		"connected, then given up": {func(s *setup) { s.gotConn(httptrace.GotConnInfo{}); s.expire() }, connected, false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &setup{cancel: cancel}
		test.do(s)
		if s.state.Load() != test.state || (ctx.Err() != nil) != test.ended || test.ended && context.Cause(ctx) != errSlowSetup {
			t.Errorf("%s: state %d, ended by %v", name, s.state.Load(), context.Cause(ctx))
		}
		cancel(nil)
	}
	// In both orders nothing is sent on an expired attempt.
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &setup{cancel: cancel}
	s.state.Store(expired)
	s.gotConn(httptrace.GotConnInfo{})
	if s.state.Load() != crossed || context.Cause(ctx) != errSlowSetup {
		t.Errorf("state %d, ended by %v", s.state.Load(), context.Cause(ctx))
	}
}

func TestRetriable(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		read := method == "GET" || method == "HEAD"
		for err, want := range map[error]bool{
			nil: false, errSlowSetup: true, errCrossed: read, io.EOF: false, context.Canceled: false,
		} {
			if got := retriable(method, err); got != want {
				t.Errorf("%s after %v: %v", method, err, got)
			}
		}
		if wrapped := fmt.Errorf("get: %w", errSlowSetup); !retriable(method, wrapped) || retriable(method, fmt.Errorf("get: %w", errCrossed)) != read {
			t.Errorf("%s: an error that is wrapped is another", method)
		}
	}
}

// A connection that is ready when the attempt expires gets no body, so the request is sent again.
func TestExpiredAttempt_BodyNotSent(t *testing.T) {
	for name, test := range map[string]struct {
		body io.Reader
		sent []string
		want error
	}{
		"with a body": {strings.NewReader("x"), []string{"", "x"}, nil},
		"without":     {nil, []string{""}, errCrossed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []string
				p := stubbed(func(req *http.Request) (*http.Response, error) {
					if len(sent) == 0 {
						<-req.Context().Done()
					}
					gotConn(req)
					var read []byte
					var err error
					if req.Body != nil {
						read, err = io.ReadAll(req.Body)
					}
					sent = append(sent, string(read))
					if err = errors.Join(err, context.Cause(req.Context())); err != nil {
						return nil, err
					}
					return &http.Response{StatusCode: http.StatusOK, Body: &content{}}, nil
				})
				resp, err := p.roundTrip(stubRequest(t.Context(), t, http.MethodPost, test.body))
				if !errors.Is(err, test.want) || !slices.Equal(sent, test.sent) {
					t.Errorf("sent %q, error %v; want %q, %v", sent, err, test.sent, test.want)
				}
				if resp != nil {
					_ = resp.Body.Close()
				}
			})
		})
	}
}

// once is a body that can be read only once.
type once struct{ io.Reader }

// Attempts start after 250 ms, then after twice the interval each time, within 8 s. The last attempt has no limit. A request whose
// body cannot be read again has one attempt.
func TestRoundTrip_Attempts(t *testing.T) {
	five := []time.Duration{0, 250 * time.Millisecond, 750 * time.Millisecond, 1750 * time.Millisecond, 3750 * time.Millisecond, 7750 * time.Millisecond}
	for name, test := range map[string]struct {
		method string
		body   func() io.Reader
		want   []time.Duration
	}{
		"without a body":                {"GET", func() io.Reader { return nil }, five},
		"with a body":                   {"POST", func() io.Reader { return strings.NewReader("text") }, five},
		"with a body that is read once": {"POST", func() io.Reader { return once{strings.NewReader("text")} }, five[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					mu    sync.Mutex
					tries []time.Duration
					began = time.Now()
				)
				p := stubbed(func(req *http.Request) (*http.Response, error) {
					mu.Lock()
					tries = append(tries, time.Since(began))
					mu.Unlock()
					if req.Body != nil {
						if text, err := io.ReadAll(req.Body); err != nil || string(text) != "text" {
							t.Errorf("sent %q, %v", text, err)
						}
						_ = req.Body.Close()
					}
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err := p.roundTrip(stubRequest(ctx, t, test.method, test.body()))
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if !slices.Equal(tries, test.want) {
					t.Errorf("tries after %v, want %v", tries, test.want)
				}
				if p.present.used != 0 {
					t.Errorf("in use %d times", p.present.used)
				}
			})
		})
	}
}

func TestRewound(t *testing.T) {
	plain := stubRequest(t.Context(), t, http.MethodGet, nil)
	if rewound(plain) != plain {
		t.Error("a request without a body is another one")
	}
	text := stubRequest(t.Context(), t, http.MethodPost, strings.NewReader("text"))
	_, _ = io.ReadAll(text.Body)
	next := rewound(text)
	if next == nil || next == text {
		t.Fatal("the same request")
	}
	if got, err := io.ReadAll(next.Body); err != nil || string(got) != "text" {
		t.Errorf("its body is %q, %v", got, err)
	}
	text.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	if rewound(text) != nil {
		t.Error("a request whose body is gone")
	}
	text.GetBody = nil
	if rewound(text) != nil {
		t.Error("a request whose body can be had once")
	}
}
