package k8sleaderelection

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// follower keeps a watch of the lock open and posts what it shows.
type follower struct {
	l     *loop
	lock  k8sresourcelock.Watchable
	clock *Clock
	fails int

	mu   sync.Mutex
	end  context.CancelFunc // of the present watch
	anew bool               // the next one starts with the present state
}

func newFollower(l *loop, lock k8sresourcelock.Watchable) *follower {
	return &follower{l: l, lock: lock, clock: l.le.clock}
}

// run returns when ctx ends.
func (f *follower) run(ctx context.Context) {
	from := ""
	for ctx.Err() == nil {
		// There may be enough by now to share a watch.
		if sub := f.l.subscribe(); sub != nil {
			if !f.post(ctx, &event{sub: sub}) {
				sub.End()
			}
			return
		}
		began := f.clock.Now().Mono
		up := false
		resume, err := f.watch(ctx, from, func(gap bool) {
			up = true
			f.post(ctx, &event{in: core.Input{Kind: core.Watching, Gap: gap}})
			f.l.report.watching(nil)
		}, func(snap k8sresourcelock.Snapshot) { f.seen(ctx, snap) })
		if ctx.Err() != nil {
			return
		}
		from = resume
		if up {
			f.post(ctx, &event{in: core.Input{Kind: core.Unwatched}})
		}
		if err != nil {
			f.l.report.watching(err)
		}
		// A watch that lasted was a good one; one that ends at once, again and again,
		// must not become a loop without a pause.
		if f.fails++; began.Until(f.clock.Now().Mono) > f.l.core.Retry {
			f.fails = 0
		}
		f.pause(ctx)
	}
}

// watch is one watch, until restart or ctx ends it, or it breaks. It begins with the present
// state if restart was asked for while there was no watch.
func (f *follower) watch(ctx context.Context, from string, up func(gap bool), seen func(k8sresourcelock.Snapshot)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	if f.anew {
		from = ""
	}
	f.end, f.anew = cancel, false
	f.mu.Unlock()
	resume, err := f.lock.Watch(ctx, from, func() { up(from == "") }, seen)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.anew {
		return "", nil
	}
	return resume, err
}

// restart begins a new watch with the present state. The loop asks for it when the
// store has gone back in time: a watch from a version to come would be accepted, and
// silent. It does not block.
func (f *follower) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.anew = true
	if f.end != nil {
		f.end()
	}
}

func (f *follower) seen(ctx context.Context, snap k8sresourcelock.Snapshot) {
	decoded, err := f.l.le.codec.snapshot(snap)
	if err != nil {
		f.l.report.watching(err)
		return
	}
	f.post(ctx, &event{in: core.Input{Kind: core.Seen, Snap: decoded}, lock: snap})
}

// post waits until the loop has taken ev in, so that a watch is never ahead of it by more
// than one event; false: it never will, for it has ended.
func (f *follower) post(ctx context.Context, ev *event) bool {
	ev.taken = make(chan struct{})
	f.l.post(ev)
	select {
	case <-ev.taken:
		return true
	case <-ctx.Done():
	}
	select { // both may have happened
	case <-ev.taken:
		return true
	default:
		return false
	}
}

// pause waits a sixteenth of a RetryPeriod after the first failure, up to four after
// more, less up to half of it, so that many candidates do not come back together.
func (f *follower) pause(ctx context.Context) {
	if f.fails == 0 {
		return
	}
	d := f.l.core.Retry / 16 << min(f.fails-1, 6)
	timer := time.NewTimer(d - rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
