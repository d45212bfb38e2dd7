package locktest

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// watching is a running Watch.
type watching struct {
	t      *trial
	cancel context.CancelFunc
	events chan k8sresourcelock.Snapshot
	ended  chan struct{}
	// resume and err are valid after ended is closed.
	resume string
	err    error
}

// watchable reports whether the lock has a Watch. Otherwise it has a Subscription, which starts with the current state and resumes
// itself.
func watchable(l k8sresourcelock.Lock) bool {
	_, ok := l.(Locker)
	return ok
}

// watch starts a Watch and waits until the API server has accepted it. For a lock without Watch it subscribes.
func (t *trial) watch(l k8sresourcelock.Lock, from string) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.ctx)
	w := &watching{t: t, cancel: cancel, events: make(chan k8sresourcelock.Snapshot, 100), ended: make(chan struct{})}
	up := make(chan struct{}, 100)
	go func() {
		defer close(w.ended)
		if object, ok := l.(Locker); ok {
			w.resume, w.err = object.Watch(ctx, from, func() { up <- struct{}{} }, func(s k8sresourcelock.Snapshot) { w.events <- s })
		} else {
			w.follow(ctx, l, func() { up <- struct{}{} })
		}
		// A call of seen from now on panics.
		close(w.events)
		if n := len(up); n > 0 && watchable(l) { // a Subscription may reconnect
			t.Errorf("up was called %d times too many", n)
		}
	}()
	t.Cleanup(w.stop)
	select {
	case <-up:
	case <-w.ended:
		t.Fatalf("the watch ended before it was up: %v", w.err)
	}
	return w
}

// follow implements Watch with a Subscription.
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
	case snap, ok := <-w.events:
		if !ok {
			w.t.Fatalf("the watch ended: %v", w.err)
		}
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
		w := t.watch(b, "")
		first := w.next()
		t.wantRecord(first, record(a, 1))
		t.wantState(first, base)
	}},
	{"watch shows changes in order", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		w := t.watch(b, "")
		base := t.acquire(a)
		t.wantRecord(w.next(), record(a, 1))
		for i := 2; i < 6; i++ {
			base = t.must(a.Write(t.ctx, base, record(a, i), map[string]string{k8sresourcelock.MarkerAnnotation: "v1"}))
		}
		for i := 2; i < 6; i++ {
			snap := w.next()
			t.wantRecord(snap, record(a, i))
			t.wantAnnotations(snap, map[string]string{k8sresourcelock.MarkerAnnotation: "v1"})
		}
		t.Delete()
		gone := w.next()
		if gone.Exists || gone.UID != "" || gone.Raw != nil || gone.Object != nil {
			t.Errorf("deleted: %+v", gone)
		}
		t.wantLater(gone, base)
		t.acquire(b)
		back := w.next()
		t.wantRecord(back, record(b, 1))
		t.wantLater(back, gone)
		if back.UID == base.UID {
			t.Error("the lock came back with its predecessor's UID")
		}
		w.stop()
		if w.err != nil || watchable(b) && number(t, w.resume).Cmp(number(t, back.ResourceVersion)) < 0 {
			t.Errorf("resume %q, error %v; want %q or a bookmark, and an ordinary end", w.resume, w.err, back.ResourceVersion)
		}
	}},
	{"watch resumes from a version", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		if !watchable(b) {
			return
		}
		base := t.acquire(a)
		w := t.watch(b, base.ResourceVersion)
		w.stop() // before the first event
		if w.err != nil || number(t, w.resume).Cmp(number(t, base.ResourceVersion)) < 0 {
			t.Errorf("resume %q, error %v; want %q or a bookmark", w.resume, w.err, base.ResourceVersion)
		}
		missed := t.must(a.Write(t.ctx, base, record(a, 2), nil))
		w = t.watch(b, base.ResourceVersion)
		t.wantRecord(w.next(), record(a, 2))
		w.stop()
		if number(t, w.resume).Cmp(number(t, missed.ResourceVersion)) < 0 {
			t.Errorf("resume %q, want %q or a bookmark", w.resume, missed.ResourceVersion)
		}
		t.Delete()
		t.acquire(b)
		w = t.watch(b, w.resume)
		if snap := w.next(); snap.Exists {
			t.Errorf("the deletion in between went unseen: %+v", snap.Record)
		}
		t.wantRecord(w.next(), record(b, 1))
	}},
	{"watch shows only its object", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.WriteOther()
		w := t.watch(a, "")
		t.WriteOther()
		t.acquire(a)
		t.wantRecord(w.next(), record(a, 1))
	}},
	{"watch shows an unreadable record", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.acquire(a)
		w := t.watch(a, base.ResourceVersion)
		t.Mutate(corrupt)
		snap := w.next()
		for !watchable(a) && snap.Unreadable == nil {
			snap = w.next()
		}
		if snap.Unreadable == nil || !snap.Exists {
			t.Errorf("exists %v, unreadable %v", snap.Exists, snap.Unreadable)
		}
	}},
	{"watch from an expired version", func(t *trial) {
		lock := t.Lock("pod-a", "stable")
		a, ok := lock.(Locker)
		if !ok {
			return
		}
		t.acquire(lock)
		resume, err := a.Watch(t.ctx, t.ExpiredVersion, func() {}, func(s k8sresourcelock.Snapshot) { t.Errorf("saw %+v", s) })
		if resume != "" || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("resume %q, error %v; want 410 and no resume", resume, err)
		}
	}},
}
