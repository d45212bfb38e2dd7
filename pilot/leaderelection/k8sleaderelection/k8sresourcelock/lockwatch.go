package k8sresourcelock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// lockWatch is the Subscription of one object. It uses the watch of the namespace if its Shared has one. Otherwise
// it has its own watch and reconnects it.
type lockWatch struct {
	eventQueue
	watch           watchFunc
	shared          *Shared // nil if the lock has its own watch
	namespace, name string

	ctx     context.Context
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool
	share *share
	stop  context.CancelFunc // stops its own watch; nil if it has none
	// disconnect ends the current connection of its own watch. restart makes the next connection start with the
	// current state.
	disconnect context.CancelFunc
	restart    bool
}

// watchFunc watches a lock object until ctx is done or the connection ends, as the method Watch of a lock does.
type watchFunc func(ctx context.Context, from string, connected func(), changed func(Snapshot)) (resume string, err error)

func newLockWatch(ctx context.Context, watch watchFunc, shared *Shared, namespace, name string, wake func()) *lockWatch {
	w := &lockWatch{eventQueue: eventQueue{wake: wake}, watch: watch, shared: shared, namespace: namespace, name: name, ctx: ctx}
	if shared != nil {
		shared.addWatch(namespace)
	}
	if !w.join() {
		w.watchAlone()
	}
	return w
}

// join uses the watch of the namespace and reports whether there is one.
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

// watchAlone starts a watch of this object only.
func (w *lockWatch) watchAlone() {
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

// StoreRestored implements Subscription.
func (w *lockWatch) StoreRestored(version string) {
	w.mu.Lock()
	share := w.share
	if share == nil {
		if w.restart = true; w.disconnect != nil {
			w.disconnect()
		}
	}
	w.mu.Unlock()
	if share != nil {
		share.of.storeRestored(w.name, version)
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

// run reconnects its own watch until the subscription ends or uses the watch of the namespace.
func (w *lockWatch) run(ctx context.Context) {
	from, failed := "", 0
	for ctx.Err() == nil {
		shown, resume, err := w.connect(ctx, from)
		if ctx.Err() != nil {
			return
		}
		from = resume
		w.put(Event{Kind: WatchDisconnected, Err: err})
		failed = failures(failed, shown, err)
		pause(ctx, failed)
		if w.join() {
			return
		}
	}
}

// connect watches the object until StoreRestored or End ends the connection, or the connection fails.
func (w *lockWatch) connect(ctx context.Context, from string) (shown bool, resume string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	if w.restart {
		from = ""
	}
	w.disconnect, w.restart = cancel, false
	w.mu.Unlock()
	resume, err = w.watch(ctx, from, func() { w.put(Event{Kind: WatchConnected, Gap: from == ""}) }, func(snap Snapshot) {
		shown = true
		w.put(Event{Kind: Changed, Snapshot: snap})
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.restart {
		return shown, "", nil
	}
	return shown, resume, err
}

// failures returns the number of consecutive failed connections. A connection that showed a change and ended
// without an error is not a failure.
func failures(before int, shown bool, err error) int {
	switch {
	case shown && err == nil:
		return 0
	case shown:
		return 1
	}
	return before + 1
}

const (
	// The pause is between 250 ms and 16 s.
	minPause      = 250 * time.Millisecond
	maxPauseShift = 6
)

// pause waits after a failed connection. The time grows with the number of failures. It is reduced by a random
// part, up to one half, so that many processes do not reconnect together.
func pause(ctx context.Context, failed int) {
	if failed == 0 {
		return
	}
	d := minPause << min(failed-1, maxPauseShift)
	timer := time.NewTimer(d - rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
