package k8sresourcelock

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedWatch follows all Leases of a namespace for its subscribers. It goes on where
// it was when the server ends it; any other end is one for all subscribers, who come
// back when they like, and then begin the next.
//
// hub.mu guards what is not set once.
type sharedWatch struct {
	hub       *WatchHub
	namespace string
	cancel    context.CancelFunc
	accepted  chan struct{} // closed once the server has accepted it
	done      chan struct{} // closed at the end; resume and err are valid then
	resume    string
	err       error

	subscribers map[string][]*subscriber // by the Lease's name
	// begin is where it began, from where the present connection did, and at is the
	// latest version shown. "" is the state of the moment in which it began.
	begin, from, at string
	// latest has the version of each Lease's latest change.
	latest map[string]string
	// rewound: the store has been found to be behind at.
	rewound bool
}

func newSharedWatch(ctx context.Context, h *WatchHub, namespace, from string) *sharedWatch {
	// It serves others when its first subscriber is gone; the last one ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &sharedWatch{
		hub: h, namespace: namespace, cancel: cancel, begin: from, from: from, at: from,
		accepted: make(chan struct{}), done: make(chan struct{}),
		subscribers: map[string][]*subscriber{}, latest: map[string]string{},
	}
	go w.run(ctx)
	return w
}

// run connects again as long as the server merely ends what was going on.
func (w *sharedWatch) run(ctx context.Context) {
	defer close(w.done)
	defer w.cancel()
	for {
		shown, err := w.connect(ctx)
		if !w.goesOn(ctx, shown, err) {
			return
		}
	}
}

// goesOn reports whether to connect again, and otherwise says where a next one may
// begin, and why this one is over.
func (w *sharedWatch) goesOn(ctx context.Context, shown bool, err error) bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	// A connection that has shown nothing may end at once again, and again.
	if err == nil && shown && ctx.Err() == nil {
		w.from = w.at
		return true
	}
	w.hub.forget(w)
	if w.rewound {
		return false
	}
	w.resume, w.err = w.at, err
	switch {
	case apierrors.IsForbidden(err):
		w.hub.refuse(w.namespace)
		if w.err = nil; !isClosed(w.accepted) {
			w.err = errNotShared
		}
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		w.resume = ""
	}
	return false
}

// connect is one watch of the namespace, until it ends.
func (w *sharedWatch) connect(ctx context.Context) (shown bool, err error) {
	stream, err := w.hub.Client.Leases(w.namespace).Watch(ctx, watchOptions("", w.from))
	if err != nil {
		return false, err
	}
	defer stream.Stop()
	first, err := peek(stream)
	if err != nil {
		return false, err
	}
	if !isClosed(w.accepted) {
		close(w.accepted)
	}
	for event := range events(ctx, stream, first) {
		if err := w.show(event); err != nil {
			return shown, err
		}
		shown = true
	}
	return shown, nil
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
	if later(version, w.at) {
		w.at = version
	}
	if event.Type == watch.Bookmark || !later(version, w.latest[lease.Name]) {
		return nil
	}
	w.latest[lease.Name] = version
	all := w.subscribers[lease.Name]
	if len(all) == 0 {
		return nil
	}
	snap := Snapshot{ResourceVersion: version}
	if event.Type != watch.Deleted {
		snap = LeaseSnapshot(lease)
	}
	for _, sub := range all {
		sub.add(snap)
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

// checkPresent ends it for all when the store is behind what it has shown of a Lease:
// it waits for versions that the store has yet to reach again.
func (w *sharedWatch) checkPresent(name, present string) bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if present == "" || !later(w.latest[name], present) {
		return true
	}
	w.rewound = true
	w.hub.forget(w)
	w.cancel()
	return false
}

// unproven reports that it began with a version and has shown nothing since. A version
// that a restored store has not reached yet is accepted, too. The caller holds hub.mu.
func (w *sharedWatch) unproven() bool { return w.begin != "" && w.at == w.begin }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// later compares versions, which are decimal numbers of any length.
func later(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
