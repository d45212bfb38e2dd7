package locktest

import (
	"context"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// watching is a running Subscription.
type watching struct {
	t      *trial
	cancel context.CancelFunc
	events chan k8sresourcelock.Snapshot
	ended  chan struct{}
	err    error // of the last disconnection; valid after ended is closed
}

// watch subscribes to the lock and waits until the API server has accepted the watch.
func (t *trial) watch(l k8sresourcelock.Lock) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.ctx)
	w := &watching{t: t, cancel: cancel, events: make(chan k8sresourcelock.Snapshot, 100), ended: make(chan struct{})}
	up := make(chan struct{}, 100) // a Subscription may reconnect
	go func() {
		defer close(w.ended)
		w.follow(ctx, l, func() { up <- struct{}{} })
	}()
	t.Cleanup(w.stop)
	select {
	case <-up:
	case <-t.ctx.Done():
		t.Fatal("the watch was not accepted")
	}
	return w
}

// follow receives events until ctx ends.
func (w *watching) follow(ctx context.Context, l k8sresourcelock.Lock, up func()) {
	event := make(chan struct{}, 1)
	watch := l.Subscribe(ctx, func() {
		select {
		case event <- struct{}{}:
		default:
		}
	})
	defer watch.End()
	for {
		select {
		case <-event:
		case <-ctx.Done():
			return
		}
		for _, n := range watch.Next() {
			switch n.Kind {
			case k8sresourcelock.WatchConnected:
				up()
			case k8sresourcelock.Changed:
				w.events <- n.Snapshot
			case k8sresourcelock.WatchDisconnected:
				w.err = n.Err
			}
		}
	}
}

func (w *watching) stop() {
	w.cancel()
	<-w.ended
}

// next returns the next event.
func (w *watching) next() k8sresourcelock.Snapshot {
	w.t.Helper()
	select {
	case snap := <-w.events:
		return snap
	case <-w.t.ctx.Done():
		w.t.Fatal("no event")
	}
	return k8sresourcelock.Snapshot{}
}

var watchChecks = []check{
	{"watch starts with the current state", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		base := t.acquire(a)
		w := t.watch(b)
		first := w.next()
		t.wantRecord(first, recordOf(a, 1))
		t.wantState(first, base)
	}},
	{"watch shows changes in order", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		w := t.watch(b)
		base := t.acquire(a)
		t.wantRecord(w.next(), recordOf(a, 1))
		for i := 2; i < 6; i++ {
			base = t.must(a.Write(t.ctx, base, recordOf(a, i), map[string]string{record.MarkerAnnotation: "v1"}))
		}
		for i := 2; i < 6; i++ {
			snap := w.next()
			t.wantRecord(snap, recordOf(a, i))
			t.wantAnnotations(snap, map[string]string{record.MarkerAnnotation: "v1"})
		}
		t.Delete()
		gone := w.next()
		if gone.Exists || gone.UID != "" || gone.Raw != nil || gone.Object != nil {
			t.Errorf("deleted: %+v", gone)
		}
		t.wantLater(gone, base)
		t.acquire(b)
		back := w.next()
		t.wantRecord(back, recordOf(b, 1))
		t.wantLater(back, gone)
		if back.UID == base.UID {
			t.Error("the lock came back with its predecessor's UID")
		}
		w.stop()
		if w.err != nil {
			t.Errorf("error %v, want an ordinary end", w.err)
		}
	}},
	{"watch shows only its object", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.WriteOther()
		w := t.watch(a)
		t.WriteOther()
		t.acquire(a)
		t.wantRecord(w.next(), recordOf(a, 1))
	}},
	{"watch shows an unreadable record", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		w := t.watch(a)
		w.next() // the current state
		t.Mutate(corrupt)
		snap := w.next()
		if snap.Unreadable == nil || !snap.Exists {
			t.Errorf("exists %v, unreadable %v", snap.Exists, snap.Unreadable)
		}
	}},
}
