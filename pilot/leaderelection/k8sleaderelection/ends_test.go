package k8sleaderelection

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// bootTimes are alarms that a test sees and never rings.
type bootTimes struct {
	mu  sync.Mutex
	due map[*alarm]int64
}

func (b *bootTimes) set(a *alarm, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due[a] = at
}

func (b *bootTimes) unset(a *alarm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.due, a)
}

// What an elector has left with others is gone when it has ended, and functions that it
// called have returned.
func TestNothingIsLeftOfAnElectorThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			epoch  = time.Now()
			clock  = NewClock(func() int64 { return int64(time.Since(epoch)) })
			boots  = &bootTimes{due: map[*alarm]int64{}}
			called bool
		)
		clock.alarms = boots
		le, err := NewLeaderElector(LeaderElectionConfig{
			Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker, LeaseDuration: 30 * time.Second,
			RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond, Clock: clock,
			RunFunctions: []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return nil }},
			Callbacks: LeaderCallbacks{OnNewLeader: func(string) {
				<-time.After(47 * time.Second) // before an alarm that was left rings
				called = true
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, releases := range []bool{false, true} {
			le.config.ReleaseOnCancel = releases
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- le.Campaign(ctx) }()
			<-time.After(45 * time.Second)
			synctest.Wait()
			if !le.IsLeader() || le.loop.Load() == nil || len(boots.due) != 1 || len(clock.jumps.loops) != 1 {
				t.Fatalf("it leads %v, with alarms %v", le.IsLeader(), boots.due)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if le.loop.Load() != nil || len(boots.due) != 0 || len(clock.jumps.loops) != 0 {
				t.Errorf("left: the loop %v, alarms %v, jumps for %d", le.loop.Load() != nil, boots.due, len(clock.jumps.loops))
			}
			if !called {
				t.Error("it ended before the function that it had called")
			}
		}
	})
}

// Since when an elector follows is known from its first moment.
func TestSinceWhenAnElectorFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := locktest.NewStore(locktest.Lease).Lock("a", "stable")
		lock.Forbid(locktest.Get, locktest.Watch)
		epoch := time.Now()
		le, err := NewLeaderElector(LeaderElectionConfig{
			Lock: lock.Locker, LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond,
			Clock: NewClock(func() int64 { return int64(time.Since(epoch)) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- le.Campaign(ctx) }()
		<-time.After(time.Minute)
		if s := le.Status(); s.Phase != "following" || !s.Since.Equal(began) {
			t.Errorf("%s since %v, began at %v", s.Phase, s.Since, began)
		}
		cancel()
		<-ended
	})
}

// Campaign returns the errors of the last term, not of one before.
func TestAnErrorIsOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		var terms atomic.Int32
		le, err := NewLeaderElector(LeaderElectionConfig{
			Lock:          locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker,
			LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond, ReleaseOnCancel: true,
			Clock: NewClock(func() int64 { return int64(time.Since(epoch)) }),
			RunFunctions: []func(context.Context) error{func(ctx context.Context) error {
				if terms.Add(1) == 1 {
					return errors.New("the first")
				}
				<-ctx.Done()
				return nil
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- le.Campaign(ctx) }()
		<-time.After(10 * time.Minute)
		cancel()
		if err := <-ended; err != nil || terms.Load() != 2 {
			t.Errorf("%v after %d terms", err, terms.Load())
		}
	})
}
