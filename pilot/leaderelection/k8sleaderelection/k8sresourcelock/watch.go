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

// The server ends a watch after a random time between these, so that watches begun
// together do not come back together.
const (
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
)

// byName asks for one object by its name, which is the only form of watch that RBAC
// can grant with resourceNames.
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

func (a access[T]) watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	if a.client == nil {
		return from, a.wrap("watch", errNoClient)
	}
	w, end, err := accepted(ctx, func(ctx context.Context) (watch.Interface, error) {
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
	up()
	resume, err := a.follow(ctx, w, first, from, seen)
	if err != nil {
		return a.ended(ctx, resume, err)
	}
	return resume, nil
}

// acceptLimit is how long an API server may take to accept a watch. One that never answers
// would be waited for as long as the election lasts, and the lock polled.
const acceptLimit = 10 * time.Second

// accepted opens a watch within acceptLimit. end ends it.
func accepted(parent context.Context, open func(context.Context) (watch.Interface, error)) (w watch.Interface, end func(), err error) {
	ctx, cancel := context.WithCancel(parent)
	limit := time.AfterFunc(acceptLimit, cancel)
	w, err = open(ctx)
	if !limit.Stop() && parent.Err() == nil {
		if err == nil {
			w.Stop()
		}
		err = fmt.Errorf("no answer within %v: %w", acceptLimit, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return w, func() { w.Stop(); cancel() }, nil
}

var errNotAccepted = errors.New("the connection ended before the watch was accepted")

// peek tells an accepted watch from the empty one that client-go hands out without
// an error when the connection timed out or broke off at the start. It returns the
// event that it may have had to take for that.
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

// ended sorts out why a watch is over. The end of its context is the caller's own
// doing and no error.
func (a access[T]) ended(ctx context.Context, resume string, err error) (string, error) {
	if ctx.Err() != nil {
		return resume, nil
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		resume = ""
	}
	return resume, a.wrap("watch", err)
}

func (a access[T]) follow(ctx context.Context, w watch.Interface, first *watch.Event, from string, seen func(Snapshot)) (string, error) {
	resume := from
	for event := range events(ctx, w, first) {
		snap, report, err := a.event(ctx, event)
		if err != nil {
			return resume, err
		}
		if report {
			seen(snap)
		}
		if snap.ResourceVersion != "" {
			resume = snap.ResourceVersion
		}
	}
	return resume, nil
}

// events are the events of a watch until it or ctx ends.
func events(ctx context.Context, w watch.Interface, first *watch.Event) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		if first != nil && (ctx.Err() != nil || !yield(*first)) {
			return
		}
		// A select picks at random among what is ready: asked before each, an ended
		// context is never followed by a further event.
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

// event decodes one watch event. A bookmark has a version to resume from and
// nothing to report.
func (a access[T]) event(ctx context.Context, event watch.Event) (snap Snapshot, report bool, err error) {
	obj, err := a.take(event)
	if err != nil {
		return Snapshot{}, false, err
	}
	version := Snapshot{ResourceVersion: obj.GetResourceVersion()}
	switch {
	// A server that does not know the selector sends the neighbours' too.
	case event.Type == watch.Bookmark || obj.GetName() != a.meta.Name:
		return version, false, nil
	case event.Type == watch.Deleted:
		return version, true, nil
	}
	snap, err = a.show(ctx, obj)
	return snap, true, err
}

// take is the object of an event: a change or a bookmark.
func (f *format[T]) take(event watch.Event) (T, error) {
	obj, ok := event.Object.(T)
	switch event.Type {
	case watch.Error:
		return obj, apierrors.FromObject(event.Object)
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		if !ok {
			return obj, fmt.Errorf("%s event with a %T", event.Type, event.Object)
		}
		return obj, nil
	default:
		return obj, fmt.Errorf("event of unknown type %q", event.Type)
	}
}
