package revisions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/pkg/kube"
)

const (
	// readTimeout bounds one list or get, and the wait for a watch to be accepted.
	readTimeout = 10 * time.Second
	// A failed try is followed by the next after a wait that doubles between these.
	firstRetry, lastRetry = 200 * time.Millisecond, 2 * time.Second
	// A watch that ends before this counts as a failed try, so that a proxy which
	// closes watches does not cause a hot loop.
	shortWatch = time.Second
	// The server ends a watch after a random time between these.
	minWatch, maxWatch = 5 * time.Minute, 10 * time.Minute
)

// sink takes the objects that were read, from one goroutine at a time.
type sink[T any] struct {
	// replace says all that there is.
	replace func([]T)
	// set says that one is there or has changed, remove that it is gone.
	set    func(T)
	remove func(name string)
}

// reflector tells a sink about the objects of one kind that a selector matches.
type reflector[T any] struct {
	source[T]
	// of follows the verb where a trouble is reported, for a watcher of several kinds.
	of string
	// name is the one object to follow; "" follows those that label selects.
	name, label string
	// optional objects count as absent where reading them is forbidden from the start.
	optional bool
	// poll is how often to read where watching is forbidden.
	poll    time.Duration
	to      sink[T]
	trouble *kube.Trouble
	behind  *behind
	// known says that the sink has been given all objects.
	known bool
}

// run follows until ctx ends. Each round reads, and then watches from where the read
// left off until the watch ends.
func (f *reflector[T]) run(ctx context.Context) {
	backoff := kube.Backoff(firstRetry, lastRetry)
	for ctx.Err() == nil {
		lasted, err := f.round(ctx)
		var wait time.Duration
		switch {
		case lasted:
			backoff = kube.Backoff(firstRetry, lastRetry)
			wait = jitter(firstRetry)
		case apierrors.IsForbidden(err) && backoff.Duration == lastRetry:
			wait = jitter(f.poll)
		default:
			// What is forbidden, too, is soon tried again at first: an API server that has just started forbids
			// everything until it has read its roles.
			wait = jitter(backoff.Step())
		}
		_ = kube.Pause(ctx, wait)
	}
	f.behind.remove(f.of) // nobody is to wait for what will not be read again
}

// round reports whether its watch lasted for a while, and why it ended. It begins with a
// read, always: a version from before an etcd was restored may lie in its future, and a watch
// that goes on from there is accepted, and silent.
func (f *reflector[T]) round(ctx context.Context) (lasted bool, err error) {
	version, err := f.read(ctx)
	if err == nil {
		lasted, err = f.watch(ctx, version)
	}
	// Changes go unseen until the next read. Where it may not read, or watch, what it reads at the pace of polls is
	// all that can be known.
	if !apierrors.IsForbidden(err) {
		f.behind.add(ctx, f.of)
	}
	return lasted, err
}

// read tells the sink all that there is, and returns the version from which a watch
// goes on: "" when the answer, of a get, has none.
func (f *reflector[T]) read(ctx context.Context) (version string, err error) {
	version, err = f.list(ctx)
	if f.name != "" && apierrors.IsForbidden(err) {
		version, err = "", f.getOne(ctx)
	}
	if f.optional && !f.known && apierrors.IsForbidden(err) {
		f.replace(nil)
	}
	return version, err
}

func (f *reflector[T]) getOne(ctx context.Context) error {
	_, err := f.get(ctx)
	return err
}

func (f *reflector[T]) replace(all []T) {
	f.known = true
	f.to.replace(all)
	f.behind.remove(f.of)
}

func (f *reflector[T]) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, version, err := f.source.list(ctx, f.selection())
	f.trouble.Tried("list"+f.of, err)
	if err != nil {
		return "", err
	}
	f.trouble.Moot("get" + f.of) // asked for only where list is forbidden
	f.replace(slices.DeleteFunc(all, func(item T) bool { return !f.concerns(&item) }))
	return version, nil
}

// get tells the sink of the one object, and returns its version, "" when it is absent.
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

// watch follows changes after a version until the server ends it, and reports whether it
// lasted for a while; a nil error is the ordinary end.
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
	ripe := time.After(shortWatch)
	oldest := ""
	if version == "" {
		// A watch from no version begins with what is there, and says nothing when
		// nothing is: what went between the first read and here shows only in another.
		if oldest, err = f.get(ctx); err != nil {
			return false, err
		}
	}
	err = f.events(ctx, w, oldest)
	select {
	case <-ripe:
		lasted = true
	default:
	}
	return lasted, err
}

// open starts a watch, and gives up when the server does not accept it in time.
func (f *reflector[T]) open(ctx context.Context, cancel context.CancelFunc, version string) (watch.Interface, error) {
	late := time.AfterFunc(readTimeout, cancel)
	w, err := f.source.watch(ctx, f.watching(version))
	if late.Stop() {
		return w, err
	}
	if err == nil {
		w.Stop()
	}
	return nil, fmt.Errorf("not accepted within %v", readTimeout)
}

// events hands a watch's events on until it ends. Those older than a get that was
// answered after the watch began are old news.
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
				return nil // the watch has ended, or shows what it was not asked for
			case !kube.Older(metaOf(item).GetResourceVersion(), oldest):
				f.hand(event.Type, item)
			}
		}
	}
}

func (f *reflector[T]) hand(kind watch.EventType, item *T) {
	if !f.concerns(item) {
		return
	}
	switch kind {
	case watch.Added, watch.Modified:
		f.to.set(*item)
	case watch.Deleted:
		f.to.remove(metaOf(item).GetName())
	case watch.Bookmark, watch.Error:
	}
}

// concerns reports whether this is the one object to follow, if it is one. A bookmark has
// no name, and a store that knows no field selectors, as a fake clientset, shows others too.
func (f *reflector[T]) concerns(item *T) bool {
	return f.name == "" || metaOf(item).GetName() == f.name
}

// selection selects the objects to list: by name, the only form of list and watch that RBAC can
// allow for one object.
func (f *reflector[T]) selection() metav1.ListOptions {
	if f.name != "" {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + f.name}
	}
	return metav1.ListOptions{LabelSelector: f.label}
}

func (f *reflector[T]) watching(version string) metav1.ListOptions {
	options := f.selection()
	seconds := int64((minWatch + rand.N(maxWatch-minWatch)) / time.Second)
	options.ResourceVersion, options.TimeoutSeconds, options.AllowWatchBookmarks = version, &seconds, true
	return options
}

// expired reports whether a version is too old to watch from.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// jitter spreads a wait over half to one and a half of its length.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
