package apirequest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	errReset    = errors.New("connection reset")
	errConflict = apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed"))
	errDenied   = apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
)

func TestTwice(t *testing.T) {
	const ms = time.Millisecond
	const never = time.Hour
	type reply struct {
		after time.Duration // from the start of the attempt
		err   error
	}
	for name, test := range map[string]struct {
		usual         time.Duration // of an earlier request
		first, second reply
		sent          int
		took          time.Duration
		from          int // the attempt that succeeded
		want          error
	}{
		"fast":                             {first: reply{5 * ms, nil}, sent: 1, took: 5 * ms, from: 1},
		"fails before the second":          {first: reply{5 * ms, errReset}, sent: 1, took: 5 * ms, want: errReset},
		"is rejected before the second":    {first: reply{5 * ms, errConflict}, sent: 1, took: 5 * ms, want: errConflict},
		"slow, and the second is slow":     {first: reply{4000 * ms, nil}, second: reply{4000 * ms, errConflict}, sent: 2, took: 4000 * ms, from: 1},
		"usually slow":                     {usual: 2000 * ms, first: reply{2400 * ms, nil}, sent: 1, took: 2400 * ms, from: 1},
		"always slow":                      {usual: 8000 * ms, first: reply{never, nil}, second: reply{50 * ms, nil}, sent: 2, took: 3050 * ms, from: 2},
		"first is dead":                    {first: reply{never, nil}, second: reply{50 * ms, nil}, sent: 2, took: 550 * ms, from: 2},
		"first breaks later":               {first: reply{700 * ms, errReset}, second: reply{900 * ms, nil}, sent: 2, took: 1400 * ms, from: 2},
		"second is refused, first is slow": {first: reply{4000 * ms, nil}, second: reply{ms, errReset}, sent: 2, took: 4000 * ms, from: 1},
		"both break":                       {first: reply{700 * ms, errReset}, second: reply{ms, errReset}, sent: 2, took: 700 * ms, want: errReset},
		"neither is answered":              {first: reply{never, nil}, second: reply{never, nil}, sent: 2, took: 9000 * ms, want: context.DeadlineExceeded},
		// The first attempt caused the conflict of the second.
		"first is a little later":          {first: reply{900 * ms, nil}, second: reply{300 * ms, errConflict}, sent: 2, took: 900 * ms, from: 1},
		"reply to the first is lost":       {first: reply{never, nil}, second: reply{300 * ms, errConflict}, sent: 2, took: 1100 * ms, want: ErrOneAnswer},
		"first breaks after a conflict":    {first: reply{900 * ms, errReset}, second: reply{300 * ms, errConflict}, sent: 2, took: 900 * ms, want: ErrOneAnswer},
		"second conflicts after a break":   {first: reply{600 * ms, errReset}, second: reply{300 * ms, errConflict}, sent: 2, took: 800 * ms, want: ErrOneAnswer},
		"first conflicts with the second":  {first: reply{600 * ms, errConflict}, second: reply{never, nil}, sent: 2, took: 1200 * ms, want: ErrOneAnswer},
		"second is denied, first executed": {first: reply{700 * ms, nil}, second: reply{150 * ms, errDenied}, sent: 2, took: 700 * ms, from: 1},
		"both are rejected":                {first: reply{900 * ms, errConflict}, second: reply{300 * ms, errConflict}, sent: 2, took: 900 * ms, want: errConflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
				defer cancel()
				var latency Latency
				latency.Answered(test.usual)
				var sent, ended atomic.Int32
				began := time.Now()
				from, err := Twice(ctx, &latency, Rejected, func(ctx context.Context) (int, error) {
					defer ended.Add(1)
					sent.Add(1)
					n, r := 1, test.first
					if IsSecond(ctx) {
						n, r = 2, test.second
					}
					if err := Pause(ctx, r.after); err != nil {
						return 0, err
					}
					if r.err != nil {
						return 0, r.err
					}
					return n, nil
				})
				if from != test.from || !errors.Is(err, test.want) || Rejected(err) != (test.want == error(errConflict)) {
					t.Errorf("attempt %d succeeded, error %v; want %d, %v", from, err, test.from, test.want)
				}
				if took := time.Since(began); took != test.took || int(sent.Load()) != test.sent || ended.Load() != sent.Load() {
					t.Errorf("after %v, %d sent, %d ended; want %v, %d", took, sent.Load(), ended.Load(), test.took, test.sent)
				}
			})
		})
	}
}

// An attempt that ignores its context, for example while it waits for credentials, does not hold back the answer of the other one.
func TestTwice_IgnoredContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stuck := range []bool{false, true} { // the second attempt
			began := time.Now()
			n, err := Twice(t.Context(), new(Latency), Rejected, func(ctx context.Context) (int, error) {
				if IsSecond(ctx) == stuck {
					<-time.After(time.Hour)
					return 1, nil
				}
				<-time.After(time.Second)
				return 2, nil
			})
			if took := time.Since(began); n != 2 || err != nil || took > 2*time.Second {
				t.Errorf("second attempt is stuck: %v; after %v: %d, %v", stuck, took, n, err)
			}
		}
		time.Sleep(time.Hour) // both attempts end
	})
}

// Only a first attempt that was overtaken shows that its connection may be dead.
func TestTwice_Cause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dead := range []bool{false, true} { // the first attempt
			var latency Latency
			causes := map[bool]error{}
			_, err := Twice(t.Context(), &latency, Rejected, func(ctx context.Context) (int, error) {
				takes := time.Second
				if IsSecond(ctx) != dead {
					takes = time.Hour
				}
				err := Pause(ctx, takes)
				causes[IsSecond(ctx)] = err
				return 0, err
			})
			if err != nil || errors.Is(causes[false], ErrOvertaken) != dead || errors.Is(causes[true], context.Canceled) == dead {
				t.Errorf("first attempt is dead: %v; causes %v, error %v", dead, causes, err)
			}
		}
	})
}

// A request whose answer was not needed any more took at least that long. An attempt that was overtaken or timed out may be dead.
func TestLatency_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			end  error // of the context, after a second
			want time.Duration
		}{"not needed": {context.Canceled, time.Second}, "timed out": {context.DeadlineExceeded, 0}} {
			var latency Latency
			ctx, end := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { end(test.end) })
			for range 2 { // the second time it has no effect
				_, _ = Twice(ctx, &latency, Rejected, func(ctx context.Context) (int, error) { return 0, Pause(ctx, time.Minute) })
			}
			if got := latency.Longest(); got != test.want {
				t.Errorf("%s: %v", name, got)
			}
		}
		var latency Latency
		_, err := Twice(t.Context(), &latency, Rejected, func(ctx context.Context) (int, error) {
			if IsSecond(ctx) {
				return 0, nil
			}
			return 0, Pause(ctx, time.Minute)
		})
		if err != nil || latency.Longest() != 0 {
			t.Errorf("overtaken: %v, %v", latency.Longest(), err)
		}
	})
}

// Only answers count, and only the latest ones.
func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var latency Latency
		send := func(takes time.Duration, result error) {
			_, _ = Twice(t.Context(), &latency, Rejected, func(context.Context) (int, error) {
				return 0, errors.Join(Pause(t.Context(), takes), result)
			})
		}
		send(400*time.Millisecond, errReset)
		if got := latency.Longest(); got != 0 {
			t.Errorf("%v without an answer", got)
		}
		send(300*time.Millisecond, errConflict)
		for range recentAnswers - 1 {
			send(time.Millisecond, nil)
		}
		if got := latency.Longest(); got != 300*time.Millisecond {
			t.Errorf("the longest of the latest answers took %v", got)
		}
		if send(time.Millisecond, nil); latency.Longest() != time.Millisecond {
			t.Errorf("an old answer counts: %v", latency.Longest())
		}
	})
}

func TestRejected(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":           {nil, false},
		"conflict":          {fmt.Errorf("update: %w", errConflict), true},
		"denied":            {errDenied, true},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), true},
		"request timeout":   {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}, false},
		"server timeout":    {apierrors.NewServerTimeout(schema.GroupResource{}, "update", 1), false},
		"no answer":         {errReset, false},
	} {
		if got := Rejected(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An attempt can call runtime.Goexit, for example a client of a test that ends the test.
func TestTwice_Goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		_, err := Twice(t.Context(), new(Latency), Rejected, func(context.Context) (int, error) {
			sent.Add(1)
			<-time.After(time.Second)
			runtime.Goexit()
			return 0, nil
		})
		if sent.Load() != 2 || !errors.Is(err, errNotReturned) {
			t.Errorf("sent %d times: %v", sent.Load(), err)
		}
	})
}
