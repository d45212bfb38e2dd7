package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

const waitsForOthers = "waiting for run functions of an earlier run"

// Campaign goes on after a term that was lost, and waits for nobody if nobody is there.
func TestCampaignGoesOnTermAfterTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := prepare(t, locktest.NewStore(locktest.Lease), "a")
		ctx, cancel := context.WithCancel(t.Context())
		ends := make(chan error, 1)
		go func() { ends <- a.Campaign(ctx) }()
		pass(time.Minute)
		a.fail <- errors.New("no database")
		pass(10 * time.Minute)
		if !a.isLive() || a.terms() != 2 || len(ends) != 0 {
			t.Errorf("live %v in its term %d, ended %d times", a.isLive(), a.terms(), len(ends))
		}
		cancel()
		<-ends
		if strings.Contains(a.logged(), waitsForOthers) {
			t.Errorf("it has waited for nobody:\n%s", a.logged())
		}
	})
}

// After functions that were stuck an elector does as it was asked: Run is one cycle,
// Campaign is not; whether they return while it waits for them or have before.
func TestCyclesAfterFunctionsThatWereStuck(t *testing.T) {
	for name, runs := range map[string]bool{"Run": true, "Campaign": false} {
		for when, waits := range map[string]bool{"while it waits": true, "before it": false} {
			t.Run(name+", they return "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playAfterStuck(t, runs, waits) })
			})
		}
	}
}

func playAfterStuck(t *testing.T, runs, waits bool) {
	store := locktest.NewStore(locktest.ConfigMap)
	release := make(chan struct{})
	started := 0
	c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
		c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error {
			if started++; started == 1 {
				<-release // whatever becomes of its context
			}
			<-ctx.Done()
			return nil
		}}
	})
	first := make(chan struct{})
	go func() { defer close(first); c.Run(t.Context()) }()
	pass(time.Minute)
	c.cut(true)
	<-first
	c.cut(false)
	if !waits {
		close(release)
		synctest.Wait()
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if runs {
			c.Run(ctx)
		} else if err := c.Campaign(ctx); err != nil {
			t.Error(err)
		}
	}()
	pass(time.Minute)
	if waits {
		close(release)
		pass(time.Minute)
	}
	if started != 2 || strings.Contains(c.logged(), waitsForOthers) != waits {
		t.Fatalf("%d were started; log\n%s", started, c.logged())
	}
	steal(store, "x")
	pass(5 * lease)
	select {
	case <-over:
		if !runs {
			t.Error("it has ended with its first term")
		}
	default:
		if runs {
			t.Error("it goes on after its term")
		}
	}
	if want := map[bool]int{true: 2, false: 3}[runs]; started != want {
		t.Errorf("%d were started, want %d", started, want)
	}
	cancel()
	<-over
}

// A watch that can be had again is told of, and it is not while it cannot.
func TestAWatchThatCanBeHadAgainIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		const again = "the lock is being watched again"
		enter(t, store, "a")
		pass(time.Second)
		b := prepare(t, store, "b")
		b.lock.Forbid(locktest.Watch)
		b.start(t)
		pass(5 * time.Minute)
		if !strings.Contains(b.logged(), "cannot be watched") || strings.Contains(b.logged(), again) {
			t.Errorf("while it cannot:\n%s", b.logged())
		}
		b.lock.Allow(locktest.Watch)
		pass(time.Hour)
		if n := strings.Count(b.logged(), again); n != 1 {
			t.Errorf("told %d times:\n%s", n, b.logged())
		}
	})
}

// A retry period that cannot be is told as it was given.
func TestARetryPeriodIsToldAsGiven(t *testing.T) {
	_, err := le.NewLeaderElector(le.LeaderElectionConfig{
		Lock: locktest.NewStore(locktest.Lease).Lock("a", "").Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: -time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), "RetryPeriod -1s: must be greater than zero") {
		t.Errorf("%v", err)
	}
}
