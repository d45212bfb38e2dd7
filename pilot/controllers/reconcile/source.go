package reconcile

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Reader is the part of a typed, dynamic or metadata client that reads one kind.
type Reader[L runtime.Object] interface {
	// List and Watch read the objects that the options select.
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Source lists and watches the objects of a kind.
type Source struct {
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	selector Selector
}

// Selector limits the objects of a Source. An empty Selector selects all objects.
type Selector struct {
	// Fields and Labels have the syntax of metav1.ListOptions.
	Fields, Labels string
}

// From returns a Source that reads the selected objects through a client.
func From[L runtime.Object](client Reader[L], selector Selector) Source {
	return Source{
		list:     func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		watch:    client.Watch,
		selector: selector,
	}
}

// listWatch returns a ListWatch that reports the result of each request. With optional, a kind that the API
// server does not serve has no objects.
func (s Source) listWatch(tried func(verb string, err error), watched func(), optional bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = s.selector.Fields
			options.LabelSelector = s.selector.Labels
			all, err := s.list(ctx, options)
			tried("list", err)
			if optional && apierrors.IsNotFound(err) {
				return &metav1.List{}, nil
			}
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = s.selector.Fields
			options.LabelSelector = s.selector.Labels
			w, err := s.watch(ctx, options)
			tried("watch", err)
			if err == nil {
				watched()
			}
			return w, interruptible(err)
		},
	}
}

// interruptible hides the type of errors on which client-go's reflector waits up to half a minute
// without watching its context. After other errors it waits as long, but stops with its context.
func interruptible(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}
