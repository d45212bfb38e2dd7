package k8sresourcelock

import (
	"context"
	"fmt"
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
	up()
	resume, err := a.follow(ctx, w, from, seen)
	if err != nil {
		return a.ended(ctx, resume, err)
	}
	return resume, nil
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

func (a access[T]) follow(ctx context.Context, w watch.Interface, from string, seen func(Snapshot)) (string, error) {
	resume := from
	for {
		// A select picks at random among what is ready: asked first, an ended
		// context is never followed by a further event.
		if ctx.Err() != nil {
			return resume, nil
		}
		select {
		case <-ctx.Done():
			return resume, nil
		case event, ok := <-w.ResultChan():
			if !ok {
				return resume, nil
			}
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
