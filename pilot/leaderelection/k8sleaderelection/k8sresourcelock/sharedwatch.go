package k8sresourcelock

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedWatch follows all Leases of a namespace until its last subscriber has gone, or
// the right to do so is missing. When a connection ends it makes the next.
//
// shared.mu guards all but what is set once.
type sharedWatch struct {
	shared    *Shared
	namespace string
	stop      context.CancelFunc
	done      chan struct{} // closed at the end

	shares map[string][]*share // by the Lease's name
	// broken ends the present connection; nil once it has, or none was made yet.
	broken context.CancelFunc
	// up: the server has accepted the present connection.
	up bool
	// at is the latest version shown since when nothing was missed; "": nothing was shown.
	at string
	// latest has the version of each Lease's latest change in that time.
	latest map[string]string
}

// share is one lock's part in a shared watch.
type share struct {
	of *sharedWatch
	to *lockWatch
	// known: it has been up since the watch began anew, and was shown all since.
	known bool
}

func newSharedWatch(ctx context.Context, s *Shared, namespace string) *sharedWatch {
	// It serves others when its first subscriber is gone; the last one ends it.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &sharedWatch{
		shared: s, namespace: namespace, stop: stop, done: make(chan struct{}),
		shares: map[string][]*share{}, latest: map[string]string{},
	}
	go w.run(ctx)
	return w
}

// add makes a share. The caller holds shared.mu.
func (w *sharedWatch) add(to *lockWatch) *share {
	s := &share{of: w, to: to}
	w.shares[to.name] = append(w.shares[to.name], s)
	if w.up {
		s.began()
	}
	return s
}

// began tells that the watch is up. The caller holds shared.mu.
func (s *share) began() {
	s.to.put(Event{Kind: WatchConnected, Gap: !s.known})
	s.known = true
}

// remove takes a share out. The last one ends the watch, and waits for that.
func (w *sharedWatch) remove(s *share) {
	w.shared.mu.Lock()
	rest := slices.DeleteFunc(w.shares[s.to.name], func(o *share) bool { return o == s })
	w.shares[s.to.name] = rest
	if len(rest) == 0 {
		delete(w.shares, s.to.name)
	}
	last := len(w.shares) == 0
	if last {
		w.shared.forget(w)
	}
	w.shared.mu.Unlock()
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
		fails = failures(fails, shown, err)
		pause(ctx, fails)
	}
}

// connect is one watch of the namespace, until it ends.
func (w *sharedWatch) connect(ctx context.Context) (shown bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.shared.mu.Lock()
	w.broken = cancel
	from := w.at
	w.shared.mu.Unlock()
	stream, end, err := accepted(ctx, func(ctx context.Context) (watch.Interface, error) {
		return w.shared.Client.Leases(w.namespace).Watch(ctx, watchOptions("", from))
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
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	w.up = true
	for s := range w.all {
		s.began()
	}
}

// ended tells all why a connection is over, and reports whether to make the next. One
// that the server ended in the course of things is no news if it can be gone on with.
func (w *sharedWatch) ended(shown bool, err error) bool {
	w.shared.mu.Lock()
	if err == nil && shown && w.at != "" {
		w.shared.mu.Unlock()
		return true
	}
	w.up = false
	refused := apierrors.IsForbidden(err)
	if refused {
		w.shared.forget(w)
		w.shared.refuse(w.namespace)
		err = nil // there is another way
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || w.at == "" {
		w.reset()
	}
	all := slices.Collect(w.all)
	for _, s := range all {
		s.to.put(Event{Kind: WatchDisconnected, Err: err})
	}
	w.shared.mu.Unlock()
	for _, s := range all {
		if refused {
			s.to.refused()
		}
	}
	return !refused
}

// reset begins anew, with the present state. The caller holds shared.mu.
func (w *sharedWatch) reset() {
	w.at = ""
	clear(w.latest)
	for s := range w.all {
		s.known = false
	}
}

// all are the shares. The caller holds shared.mu.
func (w *sharedWatch) all(yield func(*share) bool) {
	for _, shares := range w.shares {
		for _, s := range shares {
			if !yield(s) {
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
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
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
	shares := w.shares[lease.Name]
	if len(shares) == 0 {
		return nil
	}
	snap := Snapshot{ResourceVersion: version}
	if event.Type != watch.Deleted {
		snap = LeaseSnapshot(lease)
	}
	for _, s := range shares {
		s.to.put(Event{Kind: Changed, Snapshot: snap})
	}
	return nil
}

// rewound begins anew for all when the store is behind what was shown of a Lease: the
// connection waits for versions that the store has yet to reach again.
func (w *sharedWatch) rewound(name, present string) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if present == "" || !later(w.latest[name], present) {
		return
	}
	w.reset()
	w.broken() // there is a connection: it has shown something
	w.broken = nil
}

// later compares versions, which are decimal numbers of any length.
func later(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}
