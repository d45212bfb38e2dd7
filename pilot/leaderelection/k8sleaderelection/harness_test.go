package k8sleaderelection_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

const (
	lease = 30 * time.Second
	renew = 15 * time.Second
	retry = 7500 * time.Millisecond
)

// candidate is one elector in a bubble, with a run function whose life it records.
type candidate struct {
	*le.LeaderElector
	lock  *locktest.Lock
	drain time.Duration // how long the run function takes to return
	fail  chan error    // what the run function returns with while leading

	defaultRevision atomic.Pointer[le.DefaultRevision] // nil: unknown

	mu      sync.Mutex
	live    bool
	started []time.Time
	stopped []time.Time
	log     bytes.Buffer
	cancel  context.CancelFunc
	done    chan error
}

// enter starts a candidate that campaigns until the test or quit ends it.
func enter(t *testing.T, store *locktest.Store, identity string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	c := prepare(t, store, identity, change...)
	c.start(t)
	return c
}

// enterTwo starts a candidate that leads, and one that has followed for a minute.
func enterTwo(t *testing.T, store *locktest.Store, change ...func(*le.LeaderElectionConfig)) (leader, follower *candidate) {
	t.Helper()
	leader = enter(t, store, "a", change...)
	pass(time.Second)
	follower = enter(t, store, "b", change...)
	pass(time.Minute)
	return leader, follower
}

func prepare(t *testing.T, store *locktest.Store, identity string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	return prepareKey(t, store, identity, "stable", change...)
}

func prepareKey(t *testing.T, store *locktest.Store, identity, key string, change ...func(*le.LeaderElectionConfig)) *candidate {
	t.Helper()
	c := &candidate{lock: store.Lock(identity, key), fail: make(chan error, 1), done: make(chan error, 1)}
	config := le.LeaderElectionConfig{
		Lock: c.lock.Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
		ReleaseOnCancel: true, Name: "test", RunFunctions: []func(context.Context) error{c.work},
		Clock:  bubbleClock(),
		Logger: slog.New(slog.NewTextHandler(&locked{c: c}, nil)),

		DefaultRevision: c.knownDefault,
	}
	for _, f := range change {
		f(&config)
	}
	elector, err := le.NewLeaderElector(config)
	if err != nil {
		t.Fatal(err)
	}
	c.LeaderElector = elector
	return c
}

func (c *candidate) knownDefault() le.DefaultRevision {
	if d := c.defaultRevision.Load(); d != nil {
		return *d
	}
	return le.DefaultRevision{}
}

// setDefaultRevision changes what the candidate is told when it asks, and has it ask.
func (c *candidate) setDefaultRevision(d le.DefaultRevision) {
	c.defaultRevision.Store(&d)
	c.Refresh()
}

func (c *candidate) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() { c.done <- c.Campaign(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-c.done
	})
}

// cut takes the candidate's connection away: what it sends and what it watches.
func (c *candidate) cut(is bool) {
	c.lock.MuteWatches(is)
	c.lock.SetFault(nil)
	if is {
		c.lock.SetFault(func(locktest.Verb) locktest.Fault { return locktest.Fault{Hang: true} })
	}
}

// quit stops the candidate and returns what Campaign did.
func (c *candidate) quit() error {
	c.cancel()
	err := <-c.done
	c.done <- err
	return err
}

func (c *candidate) work(ctx context.Context) error {
	c.mu.Lock()
	c.live = true
	c.started = append(c.started, time.Now())
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.live = false
		c.stopped = append(c.stopped, time.Now())
		c.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		after(c.drain)
		return nil
	case err := <-c.fail:
		return err
	}
}

func (c *candidate) isLive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

func (c *candidate) terms() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.started)
}

// lastStart is when the newest term's functions started.
func (c *candidate) lastStart() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[len(c.started)-1]
}

func (c *candidate) lastStop() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped[len(c.stopped)-1]
}

func (c *candidate) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

type locked struct{ c *candidate }

func (l *locked) Write(p []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.log.Write(p)
}

// bubbleClock is a clock whose boot time is the bubble's.
func bubbleClock() *le.Clock {
	epoch := time.Now()
	return le.NewClock(func() int64 { return int64(time.Since(epoch)) })
}

// after lets the bubble's time pass and everything that follows from it happen.
func after(d time.Duration) { <-time.After(d) }

func pass(d time.Duration) {
	after(d)
	synctest.Wait()
}

// bubble runs f with time of its own.
func bubble(t *testing.T, f func(t *testing.T, store *locktest.Store)) {
	for _, kind := range []locktest.Kind{locktest.ConfigMap, locktest.Lease} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, locktest.NewStore(kind)) })
		})
	}
	t.Run("leases that share watches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := locktest.NewStore(locktest.Lease)
			store.ShareWatches()
			f(t, store)
		})
	})
}

func total(requests map[locktest.Verb]int) (n int) {
	for _, k := range requests {
		n += k
	}
	return n
}

func record(s *locktest.Store) k8sresourcelock.LeaderElectionRecord { return s.Snapshot().Record }
