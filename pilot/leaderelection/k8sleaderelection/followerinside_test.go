package k8sleaderelection

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// endless is a lock whose watch lasts until it is ended.
type endless struct{ begun chan struct{} }

func (e endless) Watch(ctx context.Context, _ string, _ func(), _ func(k8sresourcelock.Snapshot)) (string, error) {
	e.begun <- struct{}{}
	<-ctx.Done()
	return "1000", errors.New("ended")
}

// A watch that goes on when the store goes back in time ends there and then. That is no
// trouble, and where it was is nothing to go on from.
func TestARestartEndsTheWatchUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := endless{make(chan struct{})}
		f := &follower{lock: lock}
		f.restart() // none is under way yet
		go func() {
			<-lock.begun
			f.restart()
		}()
		if resume, err := f.watch(t.Context(), "900", func(bool) {}, nil); resume != "" || err != nil {
			t.Errorf("goes on from %q, error %v", resume, err)
		}
	})
}

// broken is a lock whose watch breaks at once.
type broken struct{ watched context.Context }

func (b *broken) Watch(ctx context.Context, _ string, _ func(), _ func(k8sresourcelock.Snapshot)) (string, error) {
	b.watched = ctx
	return "", errors.New("broken")
}

// A watch that has broken leaves nothing behind: a follower opens one after the other for all of its life.
func TestABrokenWatchIsLetGo(t *testing.T) {
	lock := &broken{}
	if _, err := (&follower{lock: lock}).watch(t.Context(), "900", func(bool) {}, nil); err == nil || lock.watched.Err() == nil {
		t.Errorf("it ended with %v, its context with %v", err, lock.watched.Err())
	}
}

// What the watch shows and the loop could not judge goes to the log, and no further.
func TestAFollowerDoesNotTellWhatItCannotRead(t *testing.T) {
	var log bytes.Buffer
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody takes in
	(&follower{l: l}).seen(ctx, k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"})
	if len(l.inbox.queue) != 0 || !strings.Contains(log.String(), "the lock cannot be watched") || !strings.Contains(log.String(), "1a") {
		t.Errorf("%d events, log %q", len(l.inbox.queue), log.String())
	}
}

// takingLate is a context that has ended just when the event before it was taken in.
type takingLate struct {
	context.Context
	take func()
}

func (c takingLate) Done() <-chan struct{} {
	c.take()
	return c.Context.Done()
}

// An event that the loop has taken in is its own, though the follower has to end too.
func TestAnEventThatWasTakenInIsNotTakenBack(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	f := &follower{l: l}
	for range 50 { // of two that are ready select takes any
		ev := &event{in: core.Input{Kind: core.Unwatched}}
		if !f.post(takingLate{ended, func() { close(ev.taken) }}, ev) {
			t.Fatal("it was taken in, and the follower says that it was not")
		}
	}
}

// A pause ends with the elector, and there is one for the shortest RetryPeriod too.
func TestAFollowersPauseEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &follower{l: &loop{core: core.Config{Timing: core.Timing{Retry: time.Minute}}}, fails: 7}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if f.pause(ctx); time.Since(began) != time.Second {
			t.Errorf("it ends %v after its begin, was to end after a second", time.Since(began))
		}
		f.fails, f.l.core.Retry = 1, 16
		f.pause(t.Context())
	})
}

// Functions are tolerated for the lease and what is granted beyond it, to the nanosecond.
func TestHealthAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tolerated = 10 * time.Second
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) { c.Name = "test" })
		l.le.view.Store(&view{alive: true, acked: l.le.clock.mono()})
		<-time.After(l.le.config.LeaseDuration + tolerated)
		if err := l.le.Check(tolerated); err != nil {
			t.Errorf("at the bound: %v", err)
		}
		<-time.After(time.Second)
		if err := l.le.Check(tolerated); err == nil || err.Error() != "election test: run functions are still alive 11s after the lease ran out" {
			t.Errorf("beyond it: %v", err)
		}
	})
}

// lasting is a lock whose first watch lasts for so long.
type lasting struct {
	f     *follower
	lasts time.Duration
	first context.Context
	fails int // before the second
	end   context.CancelFunc
}

func (s *lasting) Watch(ctx context.Context, _ string, _ func(), _ func(k8sresourcelock.Snapshot)) (string, error) {
	if s.first == nil {
		s.first = ctx
		<-time.After(s.lasts)
		return "", nil
	}
	s.fails = s.f.fails
	s.end()
	return "", nil
}

// A watch was a good one when it has lasted for more than a RetryPeriod; its context ends with it.
func TestWhichWatchWasAGoodOne(t *testing.T) {
	for more, want := range map[time.Duration]int{0: 1, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Plain())
			ctx, cancel := context.WithCancel(t.Context())
			lock := &lasting{lasts: l.core.Retry + more, end: cancel}
			lock.f = &follower{l: l, lock: lock, clock: NewClock(func() int64 { return time.Now().UnixNano() })}
			lock.f.run(ctx)
			if lock.fails != want || lock.first.Err() == nil {
				t.Errorf("a watch that lasted %v counts as %d failures, its context has ended: %v", lock.lasts, lock.fails, lock.first.Err())
			}
		})
	}
}
