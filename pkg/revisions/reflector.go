package revisions

// client-go's Reflector needs list and watch and reports no missing permission. The reflector in this file works with get, or
// without watch, backs off for at most two seconds, and reports when its objects may have changed unseen.

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// readTimeout is the timeout of a list, of a get, and of the start of a watch.
	readTimeout = 10 * time.Second
	// firstRetry is the pause after the first failed attempt. It doubles up to lastRetry.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
	// shortWatch is the duration below which a watch counts as failed, because a proxy may close each watch.
	shortWatch = time.Second
	// minWatch and maxWatch are the bounds of the random time after which the server ends a watch.
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
)

// reflector follows the objects of one kind that match a selector.
type reflector[T any] struct {
	*runner
	source[T]
	// of is appended to the verb in reports, for a watcher of several kinds.
	of string
	// name is the object to follow. If empty, label selects the objects.
	name, label string
	// optional objects count as absent if reading them is forbidden from the start.
	optional bool
	// to receives all objects after each change, in any order, from one goroutine at a time.
	to func([]T)
	// objects has the objects by name. It is nil before the first read.
	objects map[string]T
}

// run follows the objects until ctx ends. Each round reads, and watches from the version of the read until the watch ends.
func (f *reflector[T]) run(ctx context.Context) {
	backoff := apirequest.Backoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		lasted, err := f.round(ctx)
		var wait time.Duration
		switch {
		case lasted:
			backoff = apirequest.Backoff(firstRetry, lastRetry)
			wait = jitter(firstRetry)
		case apierrors.IsForbidden(err) && backoff.Duration == lastRetry:
			wait = jitter(f.poll)
		default:
			// A forbidden request is also repeated soon at first: an API server that has just started forbids all requests
			// until it has read its roles.
			wait = jitter(backoff.Step())
		}
		_ = apirequest.Pause(ctx, wait)
	}
	f.behind.remove(f.of) // no caller may wait for a read that does not happen
}

// round reports whether its watch lasted longer than shortWatch, and why it ended. It always begins with a read: after a restore of
// etcd, a known version can be in the future, and a watch from there is accepted and receives no events.
func (f *reflector[T]) round(ctx context.Context) (lasted bool, err error) {
	version, err := f.read(ctx)
	if err == nil {
		lasted, err = f.watch(ctx, version)
	}
	// Changes are not seen until the next read. If reading or watching is forbidden, polling is the best that is possible.
	if !apierrors.IsForbidden(err) {
		f.behind.add(ctx, f.of)
	}
	return lasted, err
}

// read reads and sends all objects. It returns the version from which a watch continues, or "" after a get.
func (f *reflector[T]) read(ctx context.Context) (version string, err error) {
	version, err = f.list(ctx)
	if f.name != "" && apierrors.IsForbidden(err) {
		_, err = f.get(ctx)
	}
	if f.optional && f.objects == nil && apierrors.IsForbidden(err) {
		f.replace(nil)
	}
	return version, err
}

func (f *reflector[T]) replace(all []T) {
	f.objects = map[string]T{}
	for _, item := range all {
		if f.concerns(&item) {
			f.objects[metaOf(&item).GetName()] = item
		}
	}
	f.send()
	f.behind.remove(f.of)
}

func (f *reflector[T]) send() { f.to(slices.Collect(maps.Values(f.objects))) }

func (f *reflector[T]) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, version, err := f.source.list(ctx, f.selection())
	f.trouble.Tried("list"+f.of, err)
	if err != nil {
		return "", err
	}
	f.trouble.Moot("get" + f.of) // get is used only if list is forbidden
	f.replace(all)
	return version, nil
}

// get reads and sends the object and returns its version, or "" if it is absent.
func (f *reflector[T]) get(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	item, err := f.source.get(ctx, f.name)
	if apierrors.IsNotFound(err) {
		f.trouble.Tried("get"+f.of, nil)
		f.replace(nil)
		return "", nil
	}
	f.trouble.Tried("get"+f.of, err)
	if err != nil {
		return "", err
	}
	f.replace([]T{*item})
	return metaOf(item).GetResourceVersion(), nil
}

// watch follows changes after a version until the server ends the watch. It reports whether the watch lasted longer than shortWatch.
// A nil error is the normal end.
func (f *reflector[T]) watch(ctx context.Context, version string) (lasted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := f.open(ctx, cancel, version)
	if expired(err) {
		return false, nil
	}
	f.trouble.Tried("watch"+f.of, err)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	long := time.After(shortWatch)
	oldest := ""
	if version == "" {
		// A watch without a version begins with the existing objects. It does not report an object that was deleted between the
		// first read and the start of the watch, so read again.
		if oldest, err = f.get(ctx); err != nil {
			return false, err
		}
	}
	err = f.events(ctx, w, oldest)
	select {
	case <-long:
		lasted = true
	default:
	}
	return lasted, err
}

// open starts a watch. It fails if the server does not accept it within readTimeout.
func (f *reflector[T]) open(ctx context.Context, cancel context.CancelFunc, version string) (watch.Interface, error) {
	late := time.AfterFunc(readTimeout, cancel)
	w, err := f.source.watch(ctx, f.watching(version))
	if late.Stop() {
		return w, err
	}
	if err == nil {
		w.Stop()
	}
	return nil, fmt.Errorf("watch was not accepted within %v", readTimeout)
}

// events applies the events of a watch until it ends. It drops events older than a get that was sent after the watch began.
func (f *reflector[T]) events(ctx context.Context, w watch.Interface, oldest string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.ResultChan():
			item, ok := any(event.Object).(*T)
			switch {
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case !ok:
				return nil // the watch has ended, or sent an object of another kind
			case !apirequest.Older(metaOf(item).GetResourceVersion(), oldest):
				f.apply(event.Type, item)
			}
		}
	}
}

func (f *reflector[T]) apply(kind watch.EventType, item *T) {
	if !f.concerns(item) {
		return
	}
	switch name := metaOf(item).GetName(); kind {
	case watch.Added, watch.Modified:
		f.objects[name] = *item
	case watch.Deleted:
		delete(f.objects, name)
	case watch.Bookmark, watch.Error:
		return
	}
	f.send()
}

// concerns reports whether the item is followed. A bookmark has no name, and a fake clientset ignores field selectors.
func (f *reflector[T]) concerns(item *T) bool {
	return f.name == "" || metaOf(item).GetName() == f.name
}

// selection returns the options of a list. RBAC can allow list and watch of one object only with a selector by name.
func (f *reflector[T]) selection() metav1.ListOptions {
	if f.name != "" {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + f.name}
	}
	return metav1.ListOptions{LabelSelector: f.label}
}

func (f *reflector[T]) watching(version string) metav1.ListOptions {
	options := f.selection()
	options.ResourceVersion = version
	options.TimeoutSeconds = new(int64((minWatch + rand.N(maxWatch-minWatch)) / time.Second))
	options.AllowWatchBookmarks = true
	return options
}

// expired reports whether the version is too old for a watch.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// jitter returns a random duration between 0.5 d and 1.5 d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
