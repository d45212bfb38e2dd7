package k8sresourcelock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// lockWatch is the Subscription of one object: a share in the watch of its namespace, where a Shared
// has one for it, and else a watch of its own, one connection after the other.
type lockWatch struct {
	mailbox
	lock            Watchable
	shared          *Shared // nil: it shares with nobody
	namespace, name string

	ctx     context.Context
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool
	share *share
	stop  context.CancelFunc // of its own watch; nil: there was none yet
	// broken ends the present connection of its own watch, anew has the next one start with the
	// present state.
	broken context.CancelFunc
	anew   bool
}

func newLockWatch(ctx context.Context, lock Watchable, shared *Shared, namespace, name string, wake func()) *lockWatch {
	w := &lockWatch{mailbox: mailbox{wake: wake}, lock: lock, shared: shared, namespace: namespace, name: name, ctx: ctx}
	if shared != nil {
		shared.addWatch(namespace)
	}
	if !w.join() {
		w.refused()
	}
	return w
}

// join takes a share in the namespace's watch, if there is one to take.
func (w *lockWatch) join() bool {
	if w.shared == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.share = w.shared.join(w)
	}
	return w.share != nil
}

// refused follows the lock by a watch of its own: the namespace may not be watched.
func (w *lockWatch) refused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.share = nil; w.ended {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	w.stop = stop
	w.running.Go(func() {
		defer stop()
		w.run(ctx)
	})
}

// Rewound implements Subscription.
func (w *lockWatch) StoreRestored(present string) {
	w.mu.Lock()
	share := w.share
	if share == nil {
		if w.anew = true; w.broken != nil {
			w.broken()
		}
	}
	w.mu.Unlock()
	if share != nil {
		share.of.rewound(w.name, present)
	}
}

// End implements Subscription.
func (w *lockWatch) End() {
	w.mu.Lock()
	share, stop, ended := w.share, w.stop, w.ended
	w.ended, w.share = true, nil
	w.mu.Unlock()
	if ended {
		return
	}
	if stop != nil {
		stop()
	}
	if share != nil {
		share.of.remove(share)
	}
	w.running.Wait()
	if w.shared != nil {
		w.shared.removeWatch(w.namespace)
	}
}

// run is its own watch, until it ends or there are enough by now to share one.
func (w *lockWatch) run(ctx context.Context) {
	from, fails := "", 0
	for ctx.Err() == nil {
		shown, resume, err := w.connect(ctx, from)
		if ctx.Err() != nil {
			return
		}
		from = resume
		w.put(Event{Kind: WatchDisconnected, Err: err})
		fails = failures(fails, shown, err)
		pause(ctx, fails)
		if w.join() {
			return
		}
	}
}

// connect is one watch, until Rewound or End ends it, or it breaks.
func (w *lockWatch) connect(ctx context.Context, from string) (shown bool, resume string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	if w.anew {
		from = ""
	}
	w.broken, w.anew = cancel, false
	w.mu.Unlock()
	resume, err = w.lock.Watch(ctx, from, func() { w.put(Event{Kind: WatchConnected, Gap: from == ""}) }, func(snap Snapshot) {
		shown = true
		w.put(Event{Kind: Changed, Snapshot: snap})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.anew {
		return shown, "", nil // it was ended for that
	}
	return shown, resume, err
}

// failures counts connections in a row that were of no use: one that has shown something was, and
// one that the server ends in the course of things after that is no failure.
func failures(before int, shown bool, err error) int {
	switch {
	case shown && err == nil:
		return 0
	case shown:
		return 1
	}
	return before + 1
}

// From a quarter of a second to 16 s.
const (
	minPause      = 250 * time.Millisecond
	maxPauseShift = 6
)

// pause waits after failures, longer after more, less up to half of it, so that many
// processes do not come back together.
func pause(ctx context.Context, fails int) {
	if fails == 0 {
		return
	}
	d := minPause << min(fails-1, maxPauseShift)
	timer := time.NewTimer(d - rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
