package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Source reads the objects of one kind.
type Source[T Object] struct {
	List  func(context.Context, metav1.ListOptions) (all []T, version string, err error)
	Watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	// Get is required for Objects with a name.
	Get func(ctx context.Context, name string) (T, error)
}

// SourceOf returns a source that uses a typed client. items returns the items of a list.
func SourceOf[T any, P interface {
	*T
	Object
}, L metav1.ListInterface](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Get(context.Context, string, metav1.GetOptions) (P, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}, items func(L) []T,
) Source[P] {
	return Source[P]{
		List: func(ctx context.Context, options metav1.ListOptions) (all []P, version string, err error) {
			list, err := client.List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			values := items(list)
			for i := range values {
				all = append(all, &values[i])
			}
			return all, list.GetResourceVersion(), nil
		},
		Get:   func(ctx context.Context, name string) (P, error) { return client.Get(ctx, name, metav1.GetOptions{}) },
		Watch: client.Watch,
	}
}

// Objects keeps the objects of one kind that match a selection. Without permission for list it reads one object with get. Without
// permission for watch it polls. Unlike client-go's Reflector, it reports when its objects may have changed unseen.
//
// Each connection begins with a read: after a restore of etcd, a known version can be in the future, and a watch from there is accepted and
// receives no events.
type Objects[T Object] struct {
	Source Source[T]
	// Name is the object to follow. If empty, Label selects the objects.
	Name, Label string
	// Optional objects count as absent if reading them is forbidden from the start.
	Optional bool
	// LongestPause is the longest pause after a failure.
	LongestPause time.Duration
	// PollInterval is the interval of reads while watching is forbidden. If 0, it is LongestPause.
	PollInterval time.Duration
	// Tried receives the result of each request. The verb is list, get or watch.
	Tried func(verb string, err error)
	// Current is called with true after each read, and with false when changes are not seen until the next read. It is not called with
	// false if requests are forbidden, because polling is the best that is possible then. Optional.
	Current func(bool)
	// Changed receives all objects after each read and each change, in any order.
	Changed func([]T)

	// objects has the objects by name. It is nil before the first read.
	objects map[string]T
	// versions has the newest version of each object, also of a deleted one.
	versions map[string]string
}

// Run follows the objects until ctx ends.
func (o *Objects[T]) Run(ctx context.Context) {
	fromGet := false
	f := Follower{
		Watch: o.Source.Watch, Selection: o.selection(), LongestPause: o.LongestPause, Pause: o.pause,
		Read: func(ctx context.Context) (version string, err error) {
			version, fromGet, err = o.read(ctx)
			return version, err
		},
		Connected: func(ctx context.Context, _ bool) error {
			o.Tried("watch", nil)
			if !fromGet {
				return nil
			}
			// The watch begins with the existing objects. It does not report an object that was deleted between the read and the start
			// of the watch, so read again.
			return o.get(ctx)
		},
		Event: func(_ context.Context, kind apiwatch.EventType, object Object) error { return o.event(kind, object) },
		Ended: func(end End) bool {
			o.ended(end)
			return true
		},
	}
	f.Run(ctx)
}

// pause returns PollInterval while requests are forbidden. It follows some retries, because an API server that has just started forbids all
// requests until it has read its roles.
func (o *Objects[T]) pause(err error, backOff time.Duration) time.Duration {
	if o.PollInterval > 0 && backOff == o.LongestPause && apierrors.IsForbidden(err) {
		return o.PollInterval
	}
	return backOff
}

// readError is an error that was already reported.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func (o *Objects[T]) ended(end End) {
	var read readError
	if !end.Accepted && !errors.As(end.Err, &read) && !IsExpired(end.Err) && !errors.Is(end.Err, ErrNotAccepted) {
		o.Tried("watch", end.Err)
	}
	if o.Current != nil && !apierrors.IsForbidden(end.Err) {
		o.Current(false)
	}
}

// read reads all objects. It returns the version from which a watch continues, or "" after a get.
func (o *Objects[T]) read(ctx context.Context) (version string, fromGet bool, err error) {
	version, err = o.list(ctx)
	if o.Name != "" && apierrors.IsForbidden(err) {
		fromGet = true
		err = o.get(ctx)
	}
	if o.Optional && o.objects == nil && apierrors.IsForbidden(err) {
		o.replace(nil)
	}
	if err != nil {
		return "", fromGet, readError{err}
	}
	return version, fromGet, nil
}

func (o *Objects[T]) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all, version, err := o.Source.List(ctx, o.selection())
	o.Tried("list", err)
	if err == nil {
		o.replace(all)
	}
	return version, err
}

// get reads the object with Name. It may be absent.
func (o *Objects[T]) get(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := o.Source.Get(ctx, o.Name)
	var all []T
	if err == nil {
		all = []T{object}
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	o.Tried("get", err)
	if err == nil {
		o.replace(all)
	}
	return err
}

func (o *Objects[T]) replace(all []T) {
	o.objects = map[string]T{}
	o.versions = map[string]string{}
	for _, object := range all {
		if o.concerns(object) {
			o.objects[object.GetName()] = object
			o.versions[object.GetName()] = object.GetResourceVersion()
		}
	}
	o.send()
	if o.Current != nil {
		o.Current(true)
	}
}

func (o *Objects[T]) event(kind apiwatch.EventType, of Object) error {
	object, ok := of.(T)
	if !ok {
		return fmt.Errorf("%s event with object %T", kind, of)
	}
	name := object.GetName()
	if !o.concerns(object) || !IsNews(object.GetResourceVersion(), o.versions[name]) {
		return nil
	}
	o.versions[name] = object.GetResourceVersion()
	if o.objects[name] = object; kind == apiwatch.Deleted {
		delete(o.objects, name)
	}
	o.send()
	return nil
}

func (o *Objects[T]) send() { o.Changed(slices.Collect(maps.Values(o.objects))) }

// concerns reports whether the object is followed. A fake clientset ignores field selectors.
func (o *Objects[T]) concerns(object T) bool { return o.Name == "" || object.GetName() == o.Name }

func (o *Objects[T]) selection() metav1.ListOptions {
	if o.Name != "" {
		return ByName(o.Name)
	}
	return metav1.ListOptions{LabelSelector: o.Label}
}
