package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// The server ends a watch after a random time between these limits, so that watches that started together do
	// not reconnect together.
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
)

// byName returns the field selector for one object. RBAC rules with resourceNames permit only such a watch.
func byName(name string) string {
	return fields.OneTermEqualSelector("metadata.name", name).String()
}

func watchOptions(selector, from string) metav1.ListOptions {
	seconds := int64((minWatch + rand.N(maxWatch-minWatch)) / time.Second)
	return metav1.ListOptions{
		FieldSelector:       selector,
		ResourceVersion:     from,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	}
}

func (a access[T]) watch(ctx context.Context, from string, connected func(), changed func(Snapshot)) (string, error) {
	if a.client == nil {
		return from, a.wrap("watch", errNoClient)
	}
	w, end, err := openWatch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return a.client.Watch(ctx, watchOptions(byName(a.meta.Name), from))
	})
	if err != nil {
		return a.ended(ctx, from, err)
	}
	defer end()
	first, err := peek(w)
	if err != nil {
		return a.ended(ctx, from, err)
	}
	connected()
	resume, err := a.follow(ctx, w, first, from, changed)
	if err != nil {
		return a.ended(ctx, resume, err)
	}
	return resume, nil
}

// acceptTimeout is the time in which an API server must accept a watch. Without it, an API server that does not
// respond would block the watch for the whole election.
const acceptTimeout = 10 * time.Second

// openWatch opens a watch within acceptTimeout. end ends the watch.
func openWatch(parent context.Context, open func(context.Context) (watch.Interface, error)) (w watch.Interface, end func(), err error) {
	ctx, cancel := context.WithCancel(parent)
	limit := time.AfterFunc(acceptTimeout, cancel)
	w, err = open(ctx)
	if !limit.Stop() && parent.Err() == nil {
		if err == nil {
			w.Stop()
		}
		err = fmt.Errorf("no response within %v: %w", acceptTimeout, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return w, func() { w.Stop(); cancel() }, nil
}

var errNotAccepted = errors.New("connection ended before the watch was accepted")

// peek distinguishes an accepted watch from the empty watch that client-go returns without an error when the
// connection failed at the start. It returns the first event if it had to receive it.
func peek(w watch.Interface) (*watch.Event, error) {
	select {
	case event, ok := <-w.ResultChan():
		if !ok {
			return nil, errNotAccepted
		}
		return &event, nil
	default:
		return nil, nil
	}
}

// ended returns the result of a watch. The end of ctx is not an error.
func (a access[T]) ended(ctx context.Context, resume string, err error) (string, error) {
	if ctx.Err() != nil {
		return resume, nil
	}
	if isExpired(err) {
		resume = ""
	}
	return resume, a.wrap("watch", err)
}

// isExpired reports whether a watch cannot resume because the version is too old. Older API servers return Gone.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func (a access[T]) follow(ctx context.Context, w watch.Interface, first *watch.Event, from string, changed func(Snapshot)) (string, error) {
	resume := from
	for event := range events(ctx, w, first) {
		snap, ok, err := a.event(ctx, event)
		if err != nil {
			return resume, err
		}
		if ok {
			changed(snap)
		}
		if snap.ResourceVersion != "" {
			resume = snap.ResourceVersion
		}
	}
	return resume, nil
}

// events iterates over the events of a watch until the watch ends or ctx is done.
func events(ctx context.Context, w watch.Interface, first *watch.Event) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		if first != nil && (ctx.Err() != nil || !yield(*first)) {
			return
		}
		// A select chooses at random between ready channels. The extra check prevents events after the end of ctx.
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case event, ok := <-w.ResultChan():
				if !ok || !yield(event) {
					return
				}
			}
		}
	}
}

// event decodes a watch event. A bookmark has a version but no change to report.
func (a access[T]) event(ctx context.Context, event watch.Event) (snap Snapshot, ok bool, err error) {
	obj, err := a.objectOf(event)
	if err != nil {
		return Snapshot{}, false, err
	}
	version := Snapshot{ResourceVersion: obj.GetResourceVersion()}
	switch {
	// A server that does not support the selector also sends other objects.
	case event.Type == watch.Bookmark || obj.GetName() != a.meta.Name:
		return version, false, nil
	case event.Type == watch.Deleted && version.ResourceVersion != "":
		return version, true, nil
	}
	snap, err = a.show(ctx, obj)
	return snap, true, err
}

// objectOf returns the object of a change or a bookmark.
func (f *format[T]) objectOf(event watch.Event) (T, error) {
	obj, ok := event.Object.(T)
	switch event.Type {
	case watch.Error:
		return obj, apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		if !ok {
			return obj, fmt.Errorf("%s event with object %T", event.Type, event.Object)
		}
		return obj, nil
	default:
		return obj, fmt.Errorf("unknown event type %q", event.Type)
	}
}
