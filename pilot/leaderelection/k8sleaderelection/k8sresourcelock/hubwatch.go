package k8sresourcelock

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedWatch follows all Leases of a namespace until its last subscriber has gone, or
// the right to do so is missing. When a connection ends it makes the next.
//
// hub.mu guards all but what is set once.
type sharedWatch struct {
	hub       *WatchHub
	namespace string
	stop      context.CancelFunc
	done      chan struct{} // closed at the end

	subscribers map[string][]*Subscription // by the Lease's name
	// broken ends the present connection; nil once it has, or none was made yet.
	broken context.CancelFunc
	// up: the server has accepted the present connection.
	up bool
	// begin is where the time began since when nothing was missed, and at is the latest
	// version shown. "" is the state of the moment in which a connection was accepted.
	begin, at string
	// latest has the version of each Lease's latest change in that time.
	latest map[string]string
}

func newSharedWatch(ctx context.Context, h *WatchHub, namespace, from string) *sharedWatch {
	// It serves others when its first subscriber is gone; the last one ends it.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &sharedWatch{
		hub: h, namespace: namespace, stop: stop, done: make(chan struct{}),
		subscribers: map[string][]*Subscription{}, begin: from, at: from, latest: map[string]string{},
	}
	go w.run(ctx)
	return w
}

// add makes a subscription. The caller holds hub.mu.
func (w *sharedWatch) add(name, from string, wake func()) *Subscription {
	sub := &Subscription{of: w, name: name, from: from, wake: wake}
	w.subscribers[name] = append(w.subscribers[name], sub)
	if w.up {
		sub.began()
	}
	return sub
}

// remove takes a subscription out. The last one ends the watch, and waits for that.
func (w *sharedWatch) remove(sub *Subscription) {
	w.hub.mu.Lock()
	rest := slices.DeleteFunc(w.subscribers[sub.name], func(s *Subscription) bool { return s == sub })
	w.subscribers[sub.name] = rest
	if len(rest) == 0 {
		delete(w.subscribers, sub.name)
	}
	last := len(w.subscribers) == 0
	if last {
		w.hub.forget(w)
	}
	w.hub.mu.Unlock()
	if last {
		w.stop()
		<-w.done
	}
}

func (w *sharedWatch) run(ctx context.Context) {
	defer close(w.done)
	fails := 0
	for ctx.Err() == nil {
		shown, err := w.connect(ctx)
		if !w.ended(shown, err) {
			return
		}
		if shown {
			fails = 0
		}
		if !shown || err != nil { // else it is the server's time limit
			fails++
		}
		w.pause(ctx, fails)
	}
}

// pause waits after failures, longer after more, less up to half of it, so that many
// processes do not come back together.
func (w *sharedWatch) pause(ctx context.Context, fails int) {
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

// From a quarter of a second to 16 s.
const (
	minPause      = 250 * time.Millisecond
	maxPauseShift = 6
)

// connect is one watch of the namespace, until it ends.
func (w *sharedWatch) connect(ctx context.Context) (shown bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.hub.mu.Lock()
	w.broken = cancel
	from := w.at
	w.hub.mu.Unlock()
	stream, end, err := accepted(ctx, func(ctx context.Context) (watch.Interface, error) {
		return w.hub.Client.Leases(w.namespace).Watch(ctx, watchOptions("", from))
	})
	if err != nil {
		return false, err
	}
	defer end()
	first, err := peek(stream)
	if err != nil {
		return false, err
	}
	w.began()
	for event := range events(ctx, stream, first) {
		if err := w.show(event); err != nil {
			return shown, err
		}
		shown = true
	}
	return shown, nil
}

// began tells all that the watch is up.
func (w *sharedWatch) began() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.up = true
	for sub := range w.all {
		sub.began()
	}
}

// ended tells all why a connection is over, and reports whether to make the next. One
// that the server ended in the course of things is no news if it can be gone on with.
func (w *sharedWatch) ended(shown bool, err error) bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if err == nil && shown && w.at != "" {
		return true
	}
	w.up = false
	if apierrors.IsForbidden(err) {
		w.hub.forget(w)
		w.hub.refuse(w.namespace)
		for sub := range w.all {
			sub.put(News{Kind: Refused})
		}
		return false
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || w.at == "" {
		w.reset()
	}
	for sub := range w.all {
		sub.put(News{Kind: Down, Err: err, Resume: w.at})
	}
	return true
}

// reset begins anew, with the present state. The caller holds hub.mu.
func (w *sharedWatch) reset() {
	w.begin, w.at = "", ""
	clear(w.latest)
	for sub := range w.all {
		sub.from, sub.known = "", false
	}
}

// all are the subscriptions. The caller holds hub.mu.
func (w *sharedWatch) all(yield func(*Subscription) bool) {
	for _, subs := range w.subscribers {
		for _, sub := range subs {
			if !yield(sub) {
				return
			}
		}
	}
}

// show gives one event to those whom it concerns.
func (w *sharedWatch) show(event watch.Event) error {
	lease, err := leases.take(event)
	if err != nil {
		return err
	}
	version := lease.ResourceVersion
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.broken == nil {
		return nil // out of date
	}
	if later(version, w.at) {
		w.at = version
	}
	if event.Type == watch.Bookmark || !later(version, w.latest[lease.Name]) {
		return nil
	}
	w.latest[lease.Name] = version
	subs := w.subscribers[lease.Name]
	if len(subs) == 0 {
		return nil
	}
	snap := Snapshot{ResourceVersion: version}
	if event.Type != watch.Deleted {
		snap = LeaseSnapshot(lease)
	}
	for _, sub := range subs {
		sub.put(News{Kind: Changed, Snapshot: snap})
	}
	return nil
}

// joinable reports whether somebody who knows a Lease as of version from can be told
// all that happened after it. The caller holds hub.mu.
func (w *sharedWatch) joinable(name, from string) bool {
	if shown, ok := w.latest[name]; ok {
		return !later(shown, from)
	}
	return w.begin != "" && !later(w.begin, from)
}

// unproven reports that it began with a version and has shown nothing since. A version
// that a restored store has not reached yet is accepted, too. The caller holds hub.mu.
func (w *sharedWatch) unproven() bool { return w.begin != "" && w.at == w.begin }

// rewound begins anew for all when the store is behind what was shown of a Lease: the
// connection waits for versions that the store has yet to reach again. It reports
// whether that is so.
func (w *sharedWatch) rewound(name, present string) bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if present == "" || !later(w.latest[name], present) {
		return false
	}
	w.reset()
	w.broken() // there is a connection: it has shown something
	w.broken = nil
	return true
}

// later compares versions, which are decimal numbers of any length.
func later(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}
