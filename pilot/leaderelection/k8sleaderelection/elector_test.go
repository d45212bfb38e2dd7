package k8sleaderelection_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

func TestElectsOneAndHandsOnAfterTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		if !a.isLive() || !a.IsLeader() || b.isLive() || b.GetLeader() != "a" {
			t.Fatalf("a live %v, b live %v, b sees %q", a.isLive(), b.isLive(), b.GetLeader())
		}
		a.drain = 3 * time.Second
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if !b.isLive() || record(store).HolderIdentity != "b" {
			t.Fatalf("b does not lead; record %+v", record(store))
		}
		if b.lastStart().Before(a.lastStop()) {
			t.Fatal("b started before a's function had returned")
		}
		if late := b.lastStart().Sub(a.lastStop()); late != 0 {
			t.Errorf("b waited %v after the drain, although its watch shows the release at once", late)
		}
	})
}

func TestStopsOnTimeWhileARequestHangs(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		b := enter(t, store, "b")
		pass(time.Minute)
		if b.isLive() {
			a, b = b, a
		}
		last := record(store).RenewTime.Time
		a.lock.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		pass(renew)
		if a.isLive() || a.IsLeader() {
			t.Error("a acts beyond its cover")
		}
		pass(lease)
		if !b.isLive() {
			t.Fatal("b did not take over")
		}
		if b.lastStart().Before(last.Add(lease)) {
			t.Errorf("b started %v after the last renewal, before the lease was over", b.lastStart().Sub(last))
		}
		if b.lastStart().After(last.Add(lease + time.Second)) {
			t.Errorf("b started only %v after the last renewal", b.lastStart().Sub(last))
		}
	})
}

func TestQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Second)
		b := enter(t, store, "b")
		a.lock.SetLatency(time.Second, time.Second) // a write is counted from when it is sent
		pass(time.Minute)
		beforeA, beforeB := total(a.lock.Requests()), total(b.lock.Requests())
		pass(3 * time.Minute) // the server ends watches after five
		if got := total(b.lock.Requests()) - beforeB; got != 0 {
			t.Errorf("a follower sent %d requests in 3 minutes: %v", got, b.lock.Requests())
		}
		if got := total(a.lock.Requests()) - beforeA; got != 24 {
			t.Errorf("a leader sent %d requests in 3 minutes, want 24: %v", got, a.lock.Requests())
		}
	})
}

func TestDeletedLockIsMadeAnewByItsLeader(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		first := a.Status().Term
		store.Delete()
		pass(time.Second)
		second := a.Status().Term
		if !a.isLive() || b.isLive() || a.terms() != 2 {
			t.Fatalf("a live %v in its term %d, b live %v", a.isLive(), a.terms(), b.isLive())
		}
		if second.Token <= first.Token || second.LockUID == first.LockUID {
			t.Errorf("the new term %+v does not differ from %+v", second, first)
		}
	})
}

func TestDeletedLockOfADeadLeaderIsSettledFirst(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		a.lock.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
		a.lock.MuteWatches(true)
		cut := record(store).RenewTime.Time
		store.Delete()
		pass(lease + time.Second)
		if !b.isLive() {
			t.Fatal("b does not lead a lease after the deletion")
		}
		if b.lastStart().Before(cut.Add(lease)) {
			t.Errorf("b started %v after the last renewal that it saw", b.lastStart().Sub(cut))
		}
	})
}

func TestCorruptRecordEndsTheTermAndIsReplacedAfterALease(t *testing.T) {
	// Of a ConfigMap only: a Lease's fields are typed, and the API server admits no nonsense.
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.ConfigMap)
		a := enter(t, store, "a")
		pass(time.Minute)
		store.Corrupt()
		pass(time.Second)
		if a.isLive() {
			t.Fatal("a leads on a record that nobody can read")
		}
		if !strings.Contains(a.logged(), "cannot be read") {
			t.Errorf("not reported: %s", a.logged())
		}
		pass(lease - 2*time.Second)
		if a.isLive() || store.Snapshot().Unreadable == nil {
			t.Fatal("replaced before it stood unchanged for a lease")
		}
		pass(3 * time.Second)
		if !a.isLive() {
			t.Fatal("not replaced")
		}
	})
}

func TestFailedFunctionGivesAnotherItsChance(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a, b := enterTwo(t, store)
		a.fail <- errors.New("no database")
		pass(time.Second)
		if a.isLive() || !b.isLive() {
			t.Fatalf("a live %v, b live %v", a.isLive(), b.isLive())
		}
	})
}

func TestErrorsOfATermAreCollected(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		one, two, second := errors.New("no database"), errors.New("no disk"), make(chan struct{})
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.RunFunctions = append(c.RunFunctions, func(context.Context) error { <-second; return two })
			c.Observer = failsNext{second}
		})
		a.start(t)
		pass(time.Minute)
		a.fail <- one
		pass(time.Second)
		if err := a.quit(); !errors.Is(err, one) || !errors.Is(err, two) {
			t.Errorf("got %v, want both errors", err)
		} else if !strings.HasSuffix(err.Error(), "no database; no disk") {
			t.Errorf("got %q, which is no one line for a log field", err)
		}
	})
}

// failsNext lets another function fail between the first failure and the term's end.
type failsNext struct{ next chan struct{} }

func (f failsNext) Phase(_, _, to, _ string) {
	if to == "draining" {
		close(f.next)
		synctest.Wait()
	}
}

func (failsNext) Call(_, _, _, _ string, _ time.Duration) {}

func TestForbiddenWatchFallsBackToPolling(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Second)
		b := prepare(t, store, "b")
		b.lock.Forbid(locktest.Watch)
		b.start(t)
		pass(time.Minute)
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		pass(time.Duration(le.JitterFactor*float64(retry)) + retry)
		if !b.isLive() {
			t.Fatal("b did not hear of the release by polling")
		}
		if n := strings.Count(b.logged(), "cannot be watched"); n != 1 {
			t.Errorf("the missing permission was reported %d times", n)
		}
	})
}

func TestPlainLockWorks(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		plain := func(c *le.LeaderElectionConfig) {
			c.Lock = struct{ k8sresourcelock.Interface }{c.Lock}
		}
		a, b := enterTwo(t, store, plain)
		if !a.isLive() || b.isLive() {
			t.Fatalf("a live %v, b live %v", a.isLive(), b.isLive())
		}
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		pass(3 * retry)
		if !b.isLive() {
			t.Fatal("b did not take over")
		}
	})
}

func TestRunIsOneCycle(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		stopped := 0
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnStoppedLeading = func() { stopped++ }
		})
		done := make(chan struct{})
		go func() { defer close(done); c.Run(t.Context()) }()
		pass(time.Minute)
		store.Put("istiod", k8sresourcelock.LeaderElectionRecord{HolderIdentity: "istiod", LeaseDurationSeconds: 30, LeaderTransitions: 9})
		<-done
		if stopped != 1 || c.isLive() {
			t.Errorf("OnStoppedLeading was called %d times; live %v", stopped, c.isLive())
		}
		if got := record(store).HolderIdentity; got != "istiod" {
			t.Errorf("another's lease was touched: holder is now %q", got)
		}
	})
}

func TestASecondRunDoesNotSayThatTheFirstHasStopped(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		stopped := 0
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.Callbacks.OnStoppedLeading = func() { stopped++ }
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		pass(time.Minute)
		c.Run(ctx)
		if stopped != 0 || !c.isLive() {
			t.Errorf("OnStoppedLeading was called %d times; live %v", stopped, c.isLive())
		}
		cancel()
		<-done
		if stopped != 1 {
			t.Errorf("OnStoppedLeading was called %d times", stopped)
		}
	})
}

// A user who calls Run again and again must not get new functions beside those that are
// stuck, nor a gate that lets these through.
func TestNoNewRunBesideFunctionsThatAreStuck(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		release := make(chan struct{})
		started := 0
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.RunFunctions = []func(context.Context) error{func(context.Context) error { started++; <-release; return nil }}
		})
		run := func() (stop func(), done chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			done = make(chan struct{})
			go func() { defer close(done); c.Run(ctx) }()
			return cancel, done
		}
		_, done := run()
		pass(time.Minute)
		c.cut(true)
		pass(2 * lease)
		<-done // the term was lost, and the function does not return
		c.cut(false)
		stop, done := run()
		pass(time.Minute)
		if started != 1 || c.IsLeader() {
			t.Fatalf("%d functions were started beside each other; leads %v", started, c.IsLeader())
		}
		stop()
		<-done
		stop, done = run()
		pass(time.Minute)
		close(release)
		pass(time.Minute)
		if started != 2 {
			t.Errorf("%d functions were started in the end", started)
		}
		stop()
		<-done
	})
}

func TestStuckDrainIsReportedAndTheLockKept(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		stuck := 0
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		c := prepare(t, store, "a", func(c *le.LeaderElectionConfig) {
			c.OnStuckDrain = func() { stuck++ }
			c.RunFunctions = []func(context.Context) error{func(context.Context) error { <-release; return nil }}
		})
		done := make(chan error, 1)
		go func() { done <- c.Campaign(ctx) }()
		pass(time.Minute)
		cancel()
		err := <-done
		if !errors.Is(err, le.ErrStuckDrain) || stuck != 1 {
			t.Errorf("got %v; reported %d times", err, stuck)
		}
		if record(store).HolderIdentity != "a" {
			t.Error("the lock was given away while a function was alive")
		}
		close(release)
	})
}

func TestAnotherProcessOfTheSameName(t *testing.T) {
	bubble(t, func(t *testing.T, store *locktest.Store) {
		a := enter(t, store, "a")
		pass(time.Minute)
		twin := enter(t, store, "a")
		pass(2 * time.Minute)
		if a.isLive() == twin.isLive() {
			t.Fatalf("first live %v, second live %v", a.isLive(), twin.isLive())
		}
		if !strings.Contains(a.logged()+twin.logged(), "another live process uses this identity") {
			t.Error("not reported")
		}
	})
}

func TestInvalidConfigurationSaysWhichDurationToChange(t *testing.T) {
	store := locktest.NewStore(locktest.Lease)
	for name, c := range map[string]struct {
		change func(*le.LeaderElectionConfig)
		want   string
	}{
		"no lock":        {func(c *le.LeaderElectionConfig) { c.Lock = nil }, "no Lock"},
		"fraction":       {func(c *le.LeaderElectionConfig) { c.LeaseDuration = 1500 * time.Millisecond }, "whole seconds"},
		"deadline":       {func(c *le.LeaderElectionConfig) { c.RenewDeadline = lease }, "lengthen LeaseDuration"},
		"retry":          {func(c *le.LeaderElectionConfig) { c.RetryPeriod = renew }, "shorten RetryPeriod"},
		"zero retry":     {func(c *le.LeaderElectionConfig) { c.RetryPeriod = 0 }, "RetryPeriod 0s"},
		"drain":          {func(c *le.LeaderElectionConfig) { c.DrainLimit = lease }, "shorten RenewDeadline or DrainLimit"},
		"drift":          {func(c *le.LeaderElectionConfig) { c.MaxClockDrift = 0.4 }, "lengthen LeaseDuration"},
		"negative grace": {func(c *le.LeaderElectionConfig) { c.PeerGrace = -1 }, "PeerGrace"},
		"no identity":    {func(c *le.LeaderElectionConfig) { c.Lock = store.Lock("", "").Locker }, "identity"},
		"long identity": {func(c *le.LeaderElectionConfig) {
			c.Lock = store.Lock(strings.Repeat("x", 300), "").Locker
		}, "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			config := le.LeaderElectionConfig{Lock: store.Lock("a", "").Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry}
			c.change(&config)
			_, err := le.NewLeaderElector(config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to mention %q", err, c.want)
			}
		})
	}
}
