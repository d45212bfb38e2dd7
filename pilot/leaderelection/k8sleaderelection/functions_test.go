package k8sleaderelection_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

func TestAFitnessCheckThatNeverReturnsIsANo(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		release := make(chan struct{})
		var hangs atomic.Bool
		var calls atomic.Int64
		a := enter(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.FitnessCheck = func(context.Context) error {
				if calls.Add(1); hangs.Load() {
					<-release // whatever becomes of its context
				}
				return nil
			}
		})
		pass(time.Minute)
		if !a.isLive() {
			t.Fatal("a is fit and does not lead")
		}
		hangs.Store(true)
		pass(4 * retry)
		if !a.Status().Unfit {
			t.Fatal("a check that hangs counts as a yes")
		}
		before := calls.Load()
		pass(time.Minute)
		if n := calls.Load() - before; n != 0 {
			t.Errorf("%d more checks beside one that hangs", n)
		}
		hangs.Store(false)
		release <- struct{}{}
		pass(3 * retry)
		if a.Status().Unfit || !strings.Contains(a.logged(), "has not answered within a RetryPeriod of 7.5s") {
			t.Errorf("the check answers again: unfit %v\n%s", a.Status().Unfit, a.logged())
		}
		hangs.Store(true)
		pass(2 * retry)
		began := time.Now()
		if err := a.quit(); err != nil || time.Since(began) > 2*retry {
			t.Errorf("ended after %v: %v", time.Since(began), err)
		}
		close(release)
	})
}

func TestAFunctionThatEndsItsGoroutineLeavesNoDrainStuck(t *testing.T) {
	for name, more := range map[string][]func(context.Context) error{
		"alone":        nil,
		"before one":   {func(ctx context.Context) error { <-ctx.Done(); return nil }},
		"before a few": {func(context.Context) error { return nil }, func(ctx context.Context) error { <-ctx.Done(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *locktest.Store) {
				end := make(chan struct{})
				a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
					c.RunFunctions = append([]func(context.Context) error{func(ctx context.Context) error {
						select {
						case <-end:
							runtime.Goexit()
						case <-ctx.Done():
						}
						return nil
					}}, more...)
				})
				a.start(t)
				pass(time.Second)
				b := enter(t, store, "b")
				pass(time.Minute)
				end <- struct{}{}
				pass(time.Second)
				if !b.isLive() || a.Status().Phase != "following" {
					t.Fatalf("b leads %v, a is %s", b.isLive(), a.Status().Phase)
				}
				if !strings.Contains(a.logged(), le.ErrGoexit.Error()) {
					t.Error(a.logged())
				}
			})
		})
	}
}

func TestWhatAFailedFunctionTellsEachTime(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var of witness
		a := observed(t, store, "a", "stable", &of)
		pass(time.Second)
		of.take()
		for range 3 {
			a.fail <- errors.New("no database\nat all")
			pass(time.Minute)
			events, _, _ := of.take()
			if len(events) == 0 || events[0] != "Warning: a stopped leading (stepped-down): no database at all" {
				t.Errorf("events %q", events)
			}
		}
		const line = `level=ERROR msg="a run function failed; stepping down for a while"`
		if n := strings.Count(a.logged(), line); n != 3 || strings.Count(a.logged(), "no database") != 3 {
			t.Errorf("%d lines tell of three failures:\n%s", n, a.logged())
		}
	})
}

func TestAnEventOfALongErrorHasRoomForIt(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		var of witness
		a := observed(t, store, "a", "stable", &of)
		pass(time.Second)
		of.take()
		a.fail <- errors.New(strings.Repeat("ä%d", 2000))
		pass(time.Second)
		events, _, _ := of.take()
		if len(events) != 1 || len(events[0]) > 1024 || !strings.Contains(events[0], "ä%dä%d") {
			t.Errorf("events %q", events)
		}
	})
}
