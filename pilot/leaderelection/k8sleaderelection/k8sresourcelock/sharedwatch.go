package k8sresourcelock

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedWatch is the watch of all Leases of a namespace.
type sharedWatch struct {
	shared    *Shared
	namespace string
	stop      context.CancelFunc
	done      chan struct{} // closed at the end

	shares map[string][]*share // by the Lease's name
	// disconnect ends the current connection. It is nil if there is none.
	disconnect context.CancelFunc
	// connected reports whether the API server has accepted the current connection.
	connected bool
	// resume is the latest version up to which nothing was missed. It is empty before the first event.
	resume string
	// latest contains the latest version of each Lease up to resume.
	latest map[string]string
}

// share is one lock's part in a shared watch.
type share struct {
	of *sharedWatch
	to *lockWatch
	// current reports whether the lock has received every change since the last reset.
	current bool
}

func newSharedWatch(ctx context.Context, s *Shared, namespace string) *sharedWatch {
	// The watch may outlive its first user. The last user ends it.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &sharedWatch{
		shared: s, namespace: namespace, stop: stop, done: make(chan struct{}),
		shares: map[string][]*share{}, latest: map[string]string{},
	}
	go w.run(ctx)
	return w
}

// add adds a user. The caller holds shared.mu.
func (w *sharedWatch) add(to *lockWatch) *share {
	s := &share{of: w, to: to}
	w.shares[to.name] = append(w.shares[to.name], s)
	if w.connected {
		s.started()
	}
	return s
}

// started reports that the watch is connected. The caller holds shared.mu.
func (s *share) started() {
	s.to.put(Event{Kind: WatchConnected, Gap: !s.current})
	s.current = true
}

// remove removes a user. If it was the last user, remove ends the watch and waits for its end.
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
	failed := 0
	for ctx.Err() == nil {
		shown, err := w.connect(ctx)
		if !w.ended(shown, err) {
			return
		}
		failed = failures(failed, shown, err)
		pause(ctx, failed)
	}
}

// connect watches the namespace until the connection ends.
func (w *sharedWatch) connect(ctx context.Context) (shown bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.shared.mu.Lock()
	w.disconnect = cancel
	from := w.resume
	w.shared.mu.Unlock()
	stream, end, err := openWatch(ctx, func(ctx context.Context) (watch.Interface, error) {
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
	w.started()
	for event := range events(ctx, stream, first) {
		if err := w.show(event); err != nil {
			return shown, err
		}
		shown = true
	}
	return shown, nil
}

// started reports to all users that the watch is connected.
func (w *sharedWatch) started() {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	w.connected = true
	for s := range w.all {
		s.started()
	}
}

// ended reports the end of a connection to all users, and whether to reconnect. A normal end is not reported if
// the next connection can resume.
func (w *sharedWatch) ended(shown bool, err error) bool {
	w.shared.mu.Lock()
	if err == nil && shown && w.resume != "" {
		w.shared.mu.Unlock()
		return true
	}
	w.connected = false
	alone := apierrors.IsForbidden(err) || errors.Is(err, errUnversioned)
	if alone {
		w.shared.forget(w)
		w.shared.setForbidden(w.namespace)
		err = nil // each lock gets its own watch
	}
	if isExpired(err) || w.resume == "" {
		w.reset()
	}
	all := slices.Collect(w.all)
	for _, s := range all {
		s.to.put(Event{Kind: WatchDisconnected, Err: err})
	}
	w.shared.mu.Unlock()
	for _, s := range all {
		if alone {
			s.to.watchAlone()
		}
	}
	return !alone
}

// reset makes the next connection start with the current state. The caller holds shared.mu.
func (w *sharedWatch) reset() {
	w.resume = ""
	clear(w.latest)
	for s := range w.all {
		s.current = false
	}
}

// all iterates over the users. The caller holds shared.mu.
func (w *sharedWatch) all(yield func(*share) bool) {
	for _, shares := range w.shares {
		for _, s := range shares {
			if !yield(s) {
				return
			}
		}
	}
}

// errUnversioned ends a shared watch. Events without versions have no order, so each lock reads its object again.
var errUnversioned = errors.New("event has no resourceVersion")

// show passes an event to the users of its Lease.
func (w *sharedWatch) show(event watch.Event) error {
	lease, err := leases.objectOf(event)
	if err != nil {
		return err
	}
	version := lease.ResourceVersion
	if version == "" {
		return errUnversioned
	}
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if w.disconnect == nil {
		return nil // the connection has ended
	}
	if isLater(version, w.resume) {
		w.resume = version
	}
	if event.Type == watch.Bookmark || !isLater(version, w.latest[lease.Name]) {
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

// storeRestored restarts the watch if the store is older than the latest version of a Lease. The connection would
// wait until the store reaches that version again.
func (w *sharedWatch) storeRestored(name, version string) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if version == "" || !isLater(w.latest[name], version) {
		return
	}
	w.reset()
	w.disconnect() // not nil: a connection has shown a version
	w.disconnect = nil
}

// isLater compares versions, which are decimal numbers of any length.
func isLater(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}
