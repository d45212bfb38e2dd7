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

// watchOptions asks for one object by its name, which is the only form of watch
// that RBAC can grant with resourceNames.
func watchOptions(name, from string) metav1.ListOptions {
	seconds := int64((minWatch + rand.N(maxWatch-minWatch)) / time.Second)
	return metav1.ListOptions{
		FieldSelector:       fields.OneTermEqualSelector("metadata.name", name).String(),
		ResourceVersion:     from,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	}
}

func (a access[T]) watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	if a.client == nil {
		return from, a.wrap("watch", errNoClient)
	}
	w, err := a.client.Watch(ctx, watchOptions(a.meta.Name, from))
	if err != nil {
		return a.ended(ctx, from, err)
	}
	defer w.Stop()
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
		snap, report, err := a.event(event)
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
				return
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
func (a access[T]) event(event watch.Event) (snap Snapshot, report bool, err error) {
	if event.Type == watch.Error {
		return Snapshot{}, false, apierrors.FromObject(event.Object)
	}
	obj, ok := event.Object.(T)
	if !ok {
		return Snapshot{}, false, fmt.Errorf("%s event with a %T", event.Type, event.Object)
	}
	version := Snapshot{ResourceVersion: obj.GetResourceVersion()}
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		// A server that does not know the selector sends the neighbours' too.
		if obj.GetName() != a.meta.Name {
			return version, false, nil
		}
		if event.Type == watch.Deleted {
			return version, true, nil
		}
		return a.snapshot(obj), true, nil
	case watch.Bookmark:
		return version, false, nil
	default:
		return Snapshot{}, false, fmt.Errorf("event of unknown type %q", event.Type)
	}
}
