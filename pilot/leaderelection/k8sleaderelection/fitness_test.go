package k8sleaderelection

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// fitLoop returns an idle loop with a fitness check, and its log.
func fitLoop(t *testing.T, check func(context.Context) error) (*loop, *entries) {
	t.Helper()
	log := &entries{}
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
		c.FitnessCheck = check
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	log.le = l.le
	return l, log
}

// startChecks runs checkFitness and returns a function that ends it.
func startChecks(t *testing.T, l *loop) (stop func()) {
	return harness.Background(t, func(ctx context.Context) error { l.checkFitness(ctx); return nil })
}

func TestCheckFitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unfit atomic.Bool
		var checks atomic.Int64
		l, log := fitLoop(t, func(ctx context.Context) error {
			checks.Add(1)
			if unfit.Load() {
				return errors.New("no disk")
			}
			select { // the end of the elector may interrupt a check
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
				return nil
			}
		})
		l.le.loop.Store(l)
		stop := startChecks(t, l)
		wants := func(want bool) {
			t.Helper()
			<-time.After(4 * l.core.Retry)
			if s := l.takeSignal(); s != fitnessChanged || l.eventOf(s).in.Unfit != want {
				t.Errorf("signal %v, unfit %v, want unfit %v", s, l.le.unfit.Load(), want)
			}
		}
		wants(false)
		unfit.Store(true)
		wants(true)
		unfit.Store(false)
		wants(false)
		<-time.After(time.Until(time.Now().Add(l.core.Retry)))
		before := checks.Load()
		began := time.Now()
		stop()
		if s := l.takeSignal(); checks.Load() != before || time.Since(began) != 0 || s != 0 || strings.Count(log.String(), "unfit to lead") != 1 {
			t.Errorf("after the end: %d checks, signal %v, took %v\n%s", checks.Load()-before, s, time.Since(began), log)
		}
	})
}

// A check has RetryPeriod to return. A later result counts for the next period, and no second check runs concurrently.
func TestFitCheck_Late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unfit := errors.New("no disk")
		var timeout time.Duration
		l, _ := fitLoop(t, func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			timeout = time.Until(deadline)
			<-time.After(timeout * 3 / 2)
			return unfit
		})
		var f fitCheck
		began := time.Now()
		err := f.result(t.Context(), l)
		synctest.Wait()
		if err == nil || errors.Is(err, unfit) || time.Since(began) != l.core.Retry || timeout != l.core.Retry {
			t.Errorf("%v after %v, timeout %v", err, time.Since(began), timeout)
		}
		if err := f.result(t.Context(), l); !errors.Is(err, unfit) || f.done != nil || time.Since(began) != l.core.Retry*3/2 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Idle counts only after the loop has processed the last SetBarred, also if two of them cancel each other out.
func TestIdle(t *testing.T) {
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock)
	l.le.loop.Store(l)
	processes := func(want bool) {
		t.Helper()
		for s := l.takeSignal(); s != 0; s = l.takeSignal() {
			l.pass(l.eventOf(s))
		}
		if is := l.le.Idle(); is != want {
			t.Errorf("idle %v, want %v", is, want)
		}
	}
	sets := func(barred bool) {
		t.Helper()
		if l.le.SetBarred(barred); l.le.Idle() {
			t.Errorf("idle directly after SetBarred(%v)", barred)
		}
	}
	sets(true)
	processes(true)
	sets(false)
	processes(false)
	sets(true)
	processes(true)
	sets(false)
	sets(true)
	processes(true)
}
