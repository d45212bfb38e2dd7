package leaderelection

import (
	"context"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// keeping is a predecessor's lock that is kept, owned by loop.
type keeping struct {
	*keeper
	held  hold
	alive bool // work has not returned

	news    chan k8sresourcelock.Snapshot // from the watch
	answers chan answer                   // room for the one call in flight
	flying  bool
	stale   bool // a read is needed before the next write
	fails   int  // calls that failed since the last write
	tryAt   k8sleaderelection.Moment
	calls   sync.WaitGroup
}

// answer is the end of a call: a write's hold, or what a read showed.
type answer struct {
	held hold
	snap k8sresourcelock.Snapshot
	read bool
	err  error
}

// loop returns work's error, nil once ctx has ended and work has returned, or errKeepLost.
func (s *keeping) loop(background context.Context, stop <-chan struct{}, done <-chan error) error {
	s.alive = true
	timer := time.NewTimer(0)
	defer timer.Stop()
	for stopped := false; s.alive || !stopped; {
		left := s.held.cover.Left(s.clock.Now())
		if left <= 0 {
			return errKeepLost
		}
		timer.Reset(s.next(background, left))
		select {
		case <-timer.C:
		case <-stop:
			stopped, stop = true, nil
		case err := <-done:
			s.alive, done = false, nil
			if err != nil {
				return err
			}
		case snap := <-s.news:
			if lost := s.saw(snap); lost {
				return errKeepLost
			}
		case a := <-s.answers:
			if lost := s.answered(a); lost {
				return errKeepLost
			}
		}
	}
	return nil
}

// next sends the call that is due, if any, and returns when to look again.
func (s *keeping) next(ctx context.Context, left time.Duration) time.Duration {
	if s.flying {
		return left
	}
	now := s.clock.Now().Mono
	wait := now.Until(s.tryAt.Mono)
	if !s.stale {
		wait = max(wait, now.Until(s.held.sent.Mono.After(s.retry)))
	}
	if wait > 0 {
		return min(wait, left)
	}
	s.flying = true
	base, read := s.held.snap, s.stale
	s.calls.Go(func() {
		a := answer{read: read}
		if read {
			a.snap, a.err = s.read(ctx)
		} else {
			a.held, a.err = s.write(ctx, base)
		}
		s.answers <- a
	})
	return left
}

// saw takes in what the watch shows, and reports whether the lock is lost.
func (s *keeping) saw(snap k8sresourcelock.Snapshot) (lost bool) {
	if versionOf(snap) <= versionOf(s.held.snap) {
		return false
	}
	if !snap.KeptForSuccessors() {
		return true
	}
	s.held.snap = snap // another successor's: the next write builds on it
	return false
}

// answered takes in the end of a call, and reports whether the lock is lost.
func (s *keeping) answered(a answer) (lost bool) {
	s.flying = false
	switch {
	case a.err != nil:
		s.stale = true
		// One conflict is another successor's renewal. More of them mean that there is
		// something that looking at once does not help against.
		if s.fails++; s.fails > 1 || !k8sresourcelock.IsConflict(a.err) {
			s.tryAt.Mono = s.clock.Now().Mono.After(s.retry / 8 << min(s.fails-1, 3))
		}
		return false
	case a.read:
		s.stale = false
		s.held.snap = a.snap
		return !a.snap.KeptForSuccessors()
	}
	s.fails = 0
	newer := s.held.snap
	s.held = a.held
	if versionOf(newer) > versionOf(a.held.snap) {
		s.held.snap = newer
	}
	s.bound(s.held.cover)
	return false
}

// follow hands on what the watch shows until ctx ends. Without a watch the next write
// finds out.
func (s *keeping) follow(ctx context.Context) {
	from := ""
	for fails := 0; ctx.Err() == nil; fails++ {
		began := s.clock.Now().Mono
		resume, err := s.lock.Watch(ctx, from, func() {}, func(snap k8sresourcelock.Snapshot) {
			select {
			case s.news <- snap:
			case <-ctx.Done():
			}
		})
		from = resume
		if err != nil {
			from = ""
		}
		if began.Until(s.clock.Now().Mono) > s.retry {
			fails = 0 // it was a good one
		}
		s.backOff(ctx, fails, 4*s.retry)
	}
}

// backOff waits after failures: an eighth of a RetryPeriod after the first, because whoever
// waits for the lock lets nobody work, and up to most after more.
func (k *keeper) backOff(ctx context.Context, fails int, most time.Duration) {
	k.linger(ctx, min(k.retry/8<<min(fails, 6), most))
}

// linger waits, unless ctx ends before.
func (k *keeper) linger(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
