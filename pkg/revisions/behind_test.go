package revisions

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// waited returns the duration of AwaitCurrent, at most a minute.
func waited(t *testing.T, r awaiter) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	from := time.Now()
	r.AwaitCurrent(ctx)
	return time.Since(from)
}

func TestAwaitCurrent(t *testing.T) {
	var (
		gone   = errors.New("connection refused")
		minute = time.Minute
	)
	for name, test := range map[string]struct {
		// lists is the error of lists between cut and back.
		list error
		back time.Duration
		// watches is the error of a watch that is never accepted.
		watch error
		// want has the wait 10 s after the start, after the cut at 20 s, and 4 minutes later.
		before, after, later [2]time.Duration
	}{
		"a watch that breaks off":     {nil, 0, nil, [2]time.Duration{}, [2]time.Duration{1, time.Second}, [2]time.Duration{}},
		"an API server that restarts": {gone, 30 * time.Second, nil, [2]time.Duration{}, [2]time.Duration{9 * time.Second, 13 * time.Second}, [2]time.Duration{}},
		// The fourth attempt is at least 0.8 s after the cut, and less than 1.2 s after the third.
		"server that forbids everything at first": {forbidden, 20800 * time.Millisecond, nil, [2]time.Duration{}, [2]time.Duration{800 * time.Millisecond, 2 * time.Second}, [2]time.Duration{}},
		"server that stays down":                  {gone, time.Hour, nil, [2]time.Duration{}, [2]time.Duration{minute, minute}, [2]time.Duration{}},
		"no permission to watch":                  {nil, 0, forbidden, [2]time.Duration{}, [2]time.Duration{}, [2]time.Duration{}},
		"watches that the server does not serve":  {nil, 0, gone, [2]time.Duration{0, 3 * time.Second}, [2]time.Duration{0, 3 * time.Second}, [2]time.Duration{0, 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := apiserver.New(), time.Now()
				s.On(func(r apiserver.Request) apiserver.Fault {
					if r.Verb == "watch" {
						return apiserver.Fault{Err: test.watch}
					}
					if now := time.Since(began); now >= 20*time.Second && now < test.back {
						return apiserver.Fault{Err: test.list}
					}
					return apiserver.Fault{}
				})
				w := NewDefault(clientOf(t, s), Config{Logger: slog.New(slog.DiscardHandler)})
				end := runs(w.Run)
				for _, at := range []struct {
					when time.Duration
					what string
					want [2]time.Duration
				}{{10 * time.Second, "before", test.before}, {20 * time.Second, "right after", test.after}, {260 * time.Second, "later", test.later}} {
					<-time.After(at.when - time.Since(began))
					if at.what == "right after" && test.watch == nil {
						s.EndWatches()
						synctest.Wait()
					}
					if got := waited(t, w.(awaiter)); got < at.want[0] || got > at.want[1] {
						t.Errorf("%s it is waited for %v, want %v", at.what, got, at.want)
					}
				}
				end()
				if got := waited(t, w.(awaiter)); got > 0 {
					t.Errorf("after its end it is waited for %v", got)
				}
			})
		})
	}
}
