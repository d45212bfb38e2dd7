package k8sleaderelection

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// fitLoop is a loop that does not run, with a Fit function, and what it logs.
func fitLoop(t *testing.T, fit func(context.Context) error) (*loop, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) {
		c.FitnessCheck, c.Logger = fit, slog.New(slog.NewTextHandler(&log, nil))
	}), &log
}

// Each change of the answer is posted, and nothing else.
func TestChangesOfFitnessArePosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wrong atomic.Bool
		var checks atomic.Int64
		l, _ := fitLoop(t, func(context.Context) error {
			if checks.Add(1); wrong.Load() {
				return errors.New("no disk")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); l.checkFitness(ctx) }()
		var posted []*event
		wants := func(want ...bool) {
			t.Helper()
			<-time.After(4 * l.core.Retry)
			synctest.Wait()
			posted = append(posted, l.takenIn()...)
			if len(posted) != len(want) {
				t.Fatalf("%d were posted, want %v", len(posted), want)
			}
			for i, ev := range posted {
				if ev.in.Unfit != want[i] {
					t.Errorf("%d: unfit %v", i, ev.in.Unfit)
				}
			}
		}
		wants(false)
		wrong.Store(true)
		wants(false, true)
		wrong.Store(false)
		wants(false, true, false)
		<-time.After(time.Second) // between two checks
		before, began := checks.Load(), time.Now()
		cancel()
		<-over
		synctest.Wait()
		if checks.Load() != before || time.Since(began) != 0 {
			t.Errorf("%d checks after the end, which took %v", checks.Load()-before, time.Since(began))
		}
	})
}

// A check has a RetryPeriod's time; a later answer counts for the next one.
func TestACheckThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := errors.New("no disk")
		var limit time.Duration
		l, _ := fitLoop(t, func(ctx context.Context) error {
			at, _ := ctx.Deadline()
			limit = time.Until(at)
			<-time.After(limit * 3 / 2)
			return wrong
		})
		var f fitCheck
		began := time.Now()
		err := f.ask(t.Context(), l)
		synctest.Wait() // the check has written limit
		if err == nil || errors.Is(err, wrong) || time.Since(began) != l.core.Retry || limit != l.core.Retry {
			t.Errorf("%v after %v, it had %v", err, time.Since(began), limit)
		}
		if err := f.ask(t.Context(), l); !errors.Is(err, wrong) || f.answer != nil || time.Since(began) != l.core.Retry*3/2 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The end waits for a check that is under way, for no more than a RetryPeriod.
func TestTheEndWaitsForACheck(t *testing.T) {
	const complaint = "does not return although its context has ended"
	synctest.Test(t, func(t *testing.T) {
		var takes time.Duration
		release := make(chan struct{})
		l, log := fitLoop(t, func(ctx context.Context) error {
			<-ctx.Done()
			select {
			case <-time.After(takes):
			case <-release:
			}
			return nil
		})
		for _, c := range []struct {
			takes, want time.Duration
			complains   bool
		}{
			{time.Second, time.Second, false},
			{0, 0, false},
			{time.Hour, l.core.Retry, true},
		} {
			takes = c.takes
			log.Reset()
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); l.checkFitness(ctx) }()
			<-time.After(time.Second) // it is under way
			began := time.Now()
			cancel()
			<-over
			if took := time.Since(began); took != c.want || strings.Contains(log.String(), complaint) != c.complains {
				t.Errorf("one that takes %v: the end has waited %v, log %q", c.takes, took, log.String())
			}
		}
		close(release)
	})
}
