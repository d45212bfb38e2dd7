package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/watch"
)

// longestPause is the longest pause between two connections of a watch.
const longestPause = 10 * time.Second

// lockWatch is the Subscription of one object. It uses the watch of the namespace if its Shared has one, otherwise a watch of this object
// only.
type lockWatch struct {
	eventQueue
	watched
	shared *Shared
	ctx    context.Context

	// shared.mu guards the fields below.
	feed *feed // nil after End
	// current reports that the subscription has received every change since its last gap.
	current bool
	// latest is the version of the last event.
	latest string
}

// watched is a lock object.
type watched struct {
	namespace, name string
	open            func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	decode          func(context.Context, apiwatch.EventType, watch.Object) (Snapshot, error)
	wrap            func(error) error
}

// watched returns the lock object for a subscription.
func (a access[T]) watched() watched {
	return watched{
		namespace: a.meta.Namespace, name: a.meta.Name,
		open: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			if a.client == nil {
				return nil, errNoClient
			}
			return a.client.Watch(ctx, options)
		},
		decode: func(ctx context.Context, kind apiwatch.EventType, object watch.Object) (Snapshot, error) {
			obj, ok := object.(T)
			if !ok {
				return Snapshot{}, fmt.Errorf("%s event with object %T", kind, object)
			}
			if version := obj.GetResourceVersion(); kind == apiwatch.Deleted && version != "" {
				return Snapshot{ResourceVersion: version}, nil
			}
			return a.show(ctx, obj)
		},
		wrap: func(err error) error { return a.wrap("watch", err) },
	}
}

// subscribe starts a subscription. shared may be nil.
func (o watched) subscribe(ctx context.Context, shared *Shared, wake func()) *lockWatch {
	if shared == nil {
		shared = &Shared{}
	}
	w := &lockWatch{eventQueue: eventQueue{wake: wake}, watched: o, shared: shared, ctx: ctx}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.addWatch(w.namespace)
	if !shared.join(w) {
		w.watchByName()
	}
	return w
}

// watchByName starts a watch of this object only. The caller holds shared.mu.
func (w *lockWatch) watchByName() {
	newFeed(w.ctx, w.shared, w.namespace, w.open, watch.ByName(w.name)).add(w)
}

// reset makes the next connection start with a gap. The caller holds shared.mu.
func (w *lockWatch) reset() {
	w.current = false
	w.latest = ""
}

// started reports that the watch is connected. The caller holds shared.mu.
func (w *lockWatch) started() {
	w.put(Event{Kind: WatchConnected, Gap: !w.current})
	w.current = true
}

// StoreRestored implements Subscription.
func (w *lockWatch) StoreRestored(version string) {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	if w.feed != nil && watch.Older(version, w.latest) {
		w.feed.restart()
	}
}

// End implements Subscription.
func (w *lockWatch) End() {
	w.shared.mu.Lock()
	f := w.feed
	if w.feed = nil; f == nil {
		w.shared.mu.Unlock()
		return
	}
	f.users = slices.DeleteFunc(f.users, func(o *lockWatch) bool { return o == w })
	last := len(f.users) == 0
	if last {
		w.shared.forget(f)
	}
	w.shared.removeWatch(w.namespace)
	w.shared.mu.Unlock()
	if last {
		f.stop()
		<-f.done
	}
}

// feed is one watch, of a lock object or of all Leases of a namespace.
type feed struct {
	shared    *Shared
	namespace string
	all       bool // all Leases of the namespace
	follower  watch.Follower
	stop      context.CancelFunc
	done      chan struct{} // closed at the end

	// shared.mu guards the fields below.
	users     []*lockWatch
	connected bool // the API server has accepted the current connection
}

// newFeed starts a watch. The caller holds s.mu.
func newFeed(ctx context.Context, s *Shared, namespace string, open func(context.Context, metav1.ListOptions) (apiwatch.Interface, error),
	selection metav1.ListOptions,
) *feed {
	ctx, stop := context.WithCancel(ctx)
	f := &feed{shared: s, namespace: namespace, all: selection.FieldSelector == "", stop: stop, done: make(chan struct{})}
	f.follower = watch.Follower{
		Watch: open, Selection: selection, LongestPause: longestPause, Connected: f.started, Event: f.show, Ended: f.ended,
	}
	go func() {
		defer close(f.done)
		defer stop()
		f.follower.Run(ctx)
	}()
	return f
}

// add adds a user. The caller holds shared.mu.
func (f *feed) add(w *lockWatch) {
	f.users = append(f.users, w)
	w.feed = f
	w.reset()
	if f.connected {
		w.started()
	}
}

// started reports to all users that the watch is connected.
func (f *feed) started(_ context.Context, gap bool) error {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	f.connected = true
	for _, w := range f.users {
		if gap {
			w.reset()
		}
		w.started()
	}
	return nil
}

// errUnversioned ends the watch of a namespace. Events without versions have no order, so each lock reads its object again.
var errUnversioned = errors.New("event has no resourceVersion")

// show passes an event to the users of its object. A server that does not support the selector also sends other objects.
func (f *feed) show(ctx context.Context, kind apiwatch.EventType, object watch.Object) error {
	version := object.GetResourceVersion()
	if f.all && version == "" {
		return errUnversioned
	}
	f.shared.mu.Lock()
	users := slices.Clone(f.users)
	f.shared.mu.Unlock()
	for _, w := range users {
		if w.name != object.GetName() {
			continue
		}
		snap, err := w.decode(ctx, kind, object)
		if err != nil {
			return err
		}
		f.pass(w, version, snap)
	}
	return nil
}

// pass passes a new state to a user. An event of a connection that restart ended does not count.
func (f *feed) pass(w *lockWatch, version string, snap Snapshot) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.connected && w.feed == f && watch.IsNews(version, w.latest) {
		w.latest = version
		w.put(Event{Kind: Changed, Snapshot: snap})
	}
}

// ended reports the end of a connection to all users, and whether to reconnect.
func (f *feed) ended(end watch.End) (again bool) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if len(f.users) == 0 {
		return false
	}
	byName := f.all && (apierrors.IsForbidden(end.Err) || errors.Is(end.Err, errUnversioned))
	if byName {
		f.shared.forget(f)
		f.shared.setForbidden(f.namespace)
		end.Err = nil
	}
	if !end.Resumes {
		f.connected = false
		for _, w := range f.users {
			w.disconnected(end.Err)
		}
	}
	again = true
	for _, w := range slices.Clone(f.users) {
		switch {
		case byName:
			w.watchByName()
			again = false
		case !f.all && f.shared.join(w): // the watch of the namespace started since
			again = false
		}
	}
	if !again {
		f.users = nil
	}
	return again
}

func (w *lockWatch) disconnected(err error) {
	if err != nil {
		err = w.wrap(err)
	}
	w.put(Event{Kind: WatchDisconnected, Err: err})
}

// restart makes the next connection start with the current state, because the store was restored. Otherwise the watch would wait until the
// store reaches the latest version again. The caller holds shared.mu.
func (f *feed) restart() {
	f.connected = false
	for _, w := range f.users {
		w.reset()
	}
	f.follower.Restart()
}
