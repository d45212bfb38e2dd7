package k8sleaderelection

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

func TestTermContext(t *testing.T) {
	want := Term{LockUID: "u", Transitions: 3, Token: 9}
	if got, ok := TermFromContext(ContextWithTerm(t.Context(), want)); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := TermFromContext(t.Context()); ok {
		t.Error("a context without a term has one")
	}
}

// A term ends when all functions have returned or called runtime.Goexit. A panic does not wait for them.
func TestTermRun(t *testing.T) {
	type functions = []func(context.Context) error
	returned := false
	slow := func(context.Context) error { <-time.After(time.Second); returned = true; return nil }
	quick := func(context.Context) error { return nil }
	one := func(context.Context) error { return errors.New("no database") }
	two := func(context.Context) error { return errors.New("no disk") }
	late := func(ctx context.Context) error { <-ctx.Done(); return errors.New("interrupted") }
	goexit := func(context.Context) error { runtime.Goexit(); return nil }
	for name, c := range map[string]struct {
		functions functions
		failures  []string
	}{
		"slow first":       {functions{slow, quick}, nil},
		"slow last":        {functions{quick, slow}, nil},
		"goexit":           {functions{slow, goexit}, []string{ErrGoexit.Error()}},
		"goexit first":     {functions{goexit, slow}, []string{ErrGoexit.Error()}},
		"two failures":     {functions{slow, one, two}, []string{"no database", "no disk"}},
		"error after stop": {functions{slow, late}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock)
			ctx, cancel := context.WithCancel(t.Context())
			term := &term{l: l, ended: make(chan struct{})}
			returned = false
			go term.run(ctx, LeaderElectionConfig{RunFunctions: c.functions}.functions())
			<-time.After(time.Minute)
			cancel()
			var drained int
			var failures []string
			for _, ev := range l.posted() {
				if ev.in.Kind == core.Drained {
					drained++
				} else {
					failures = append(failures, ev.err.Error())
				}
			}
			slices.Sort(failures)
			if drained != 1 || !returned || !slices.Equal(failures, c.failures) {
				t.Errorf("%s: drained events %d, slow function returned %v, failures %q", name, drained, returned, failures)
			}
			for _, want := range c.failures {
				if err := term.failure(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want %s", name, err, want)
				}
			}
		})
	}
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock)
	defer func() {
		if p := recover(); p != "broken" || len(l.events) != 0 {
			t.Errorf("recovered %v, events %d", p, len(l.events))
		}
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	(&term{l: l}).run(ended, []runFunction{{run: func(context.Context) error { panic("broken") }}})
}

// A function that does not return after the end of its context is named in the log: first in a warning, then with the error.
func TestSlowDrain_IsLogged(t *testing.T) {
	unchanged := func(*LeaderElectionConfig) {}
	named := func(c *LeaderElectionConfig) { c.RunFunctionNames = []string{"sync of routes"} }
	for name, x := range map[string]struct {
		change func(*LeaderElectionConfig)
		drain  time.Duration
		warn   string // the function in the warning; empty: no warning
		stuck  bool
	}{
		"quick":          {drain: slowDrain - time.Millisecond, change: unchanged},
		"slow":           {drain: slowDrain + time.Millisecond, change: unchanged, warn: "TestSlowDrain_IsLogged"},
		"slow, named":    {drain: slowDrain + time.Millisecond, change: named, warn: "sync of routes"},
		"stuck callback": {drain: time.Minute, change: asCallback, warn: "asCallback", stuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				l := idleLoop(t, locktest.NewStore(locktest.Lease).Lock("a", "").Lock, func(c *LeaderElectionConfig) {
					c.LeaseDuration = time.Minute
					c.ReleaseOnCancel = true
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
					c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error {
						<-ctx.Done()
						<-time.After(x.drain)
						return nil
					}}
				}, x.change)
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				l.le.Run(ctx)
				<-time.After(time.Minute) // the function ends
				const warning = "level=WARN msg=\"run functions have not returned"
				if got := strings.Count(log.String(), warning); got != min(len(x.warn), 1) || !strings.Contains(log.String(), x.warn) {
					t.Errorf("warnings: %d, log:\n%s", got, &log)
				}
				if strings.Contains(log.String(), "within their limit") != x.stuck {
					t.Errorf("stuck %v, log:\n%s", x.stuck, &log)
				}
			})
		})
	}
}

// asCallback moves the run function to OnStartedLeading.
func asCallback(c *LeaderElectionConfig) {
	f := c.RunFunctions[0]
	c.RunFunctions = nil
	c.Callbacks.OnStartedLeading = func(ctx context.Context) { _ = f(ctx) }
}

// If run functions exceed their limit, the process ends after the log entry and OnStuckDrain. It does not wait for them for long.
func TestStuckDrain_Exits(t *testing.T) {
	for name, x := range map[string]struct{ drain, log, exit time.Duration }{
		"returns": {time.Second, 0, time.Second}, "OnStuckDrain blocks": {time.Hour, 0, 7500 * time.Millisecond}, "Logger blocks": {time.Second, time.Hour, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log harness.Log
			release := make(chan struct{})
			l := idleLoop(t, locktest.NewStore(locktest.Lease).Lock("a", "").Lock, func(c *LeaderElectionConfig) {
				c.Logger = slog.New(slowLog{slog.NewTextHandler(&log, nil), "within their limit", x.log})
				c.Callbacks.OnStartedLeading = func(context.Context) { <-release }
				c.OnStuckDrain = func() { <-time.After(x.drain) }
				c.ExitOnStuckDrain = true
			})
			began := time.Now()
			var (
				exit   time.Duration
				logged bool
				once   sync.Once // the process continues in this test
			)
			l.le.exit = func(code int) {
				once.Do(func() {
					exit = time.Since(began)
					logged = log.Count("within their limit") > 0
					if code != exitStuck {
						t.Errorf("exit code %d", code)
					}
				})
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			err := l.le.Campaign(ctx)
			synctest.Wait()
			const overdue = time.Minute + 15*time.Second // StopLimit
			if !errors.Is(err, ErrStuckDrain) || exit != overdue+x.exit || time.Since(began) > overdue+time.Minute {
				t.Errorf("%s: %v after %v, exit after %v, want %v", name, err, time.Since(began), exit, overdue+x.exit)
			}
			if logged != (x.log == 0) {
				t.Errorf("%s: entry before the exit: %v", name, logged)
			}
			close(release)
			<-time.After(2 * time.Hour)
		})
	}
}

// slowLog needs a time for entries with a text.
type slowLog struct {
	slog.Handler
	text  string
	takes time.Duration
}

func (h slowLog) Handle(ctx context.Context, entry slog.Record) error {
	if strings.Contains(entry.Message, h.text) {
		<-time.After(h.takes)
	}
	return h.Handler.Handle(ctx, entry)
}

func (h slowLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowLog{h.Handler.WithAttrs(attrs), h.text, h.takes}
}
