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

// Reader is the part of a typed, dynamic or metadata client that reads one kind, in one
// namespace or all.
type Reader[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Source is where the objects of a kind are read.
type Source struct {
	list   func(context.Context, metav1.ListOptions) (runtime.Object, error)
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error)
	only   Selector
}

// Selector is which objects of a kind are read; empty means all.
type Selector struct {
	Fields, Labels string
}

// From reads through a client those objects that a selector picks.
func From[L runtime.Object](client Reader[L], only Selector) Source {
	return Source{
		list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		follow: client.Watch, only: only,
	}
}

// listWatch lists and watches, and reports how that goes.
func (s Source) listWatch(tried func(verb string, err error), watched func()) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector, options.LabelSelector = s.only.Fields, s.only.Labels
			all, err := s.list(ctx, options)
			tried("list", err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector, options.LabelSelector = s.only.Fields, s.only.Labels
			w, err := s.follow(ctx, options)
			tried("watch", err)
			if err == nil {
				watched()
			}
			return w, interruptible(err)
		},
	}
}

// interruptible hides what client-go's reflector would wait for by itself, for up to
// half a minute and deaf to the end of its context. What it does not know, it returns
// with; then it waits as long, but listens.
func interruptible(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}
