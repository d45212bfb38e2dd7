package revisions

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// source reads the objects of one kind.
type source[T any] struct {
	list  func(context.Context, metav1.ListOptions) (all []T, version string, err error)
	get   func(ctx context.Context, name string) (*T, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// typed has the methods of a typed client that a source needs.
type typed[T any, L metav1.ListInterface] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Get(context.Context, string, metav1.GetOptions) (*T, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sourceOf returns a source that uses a typed client. items returns the items of a list.
func sourceOf[T any, L metav1.ListInterface](client typed[T, L], items func(L) []T) source[T] {
	return source[T]{
		list: func(ctx context.Context, options metav1.ListOptions) ([]T, string, error) {
			list, err := client.List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return items(list), list.GetResourceVersion(), nil
		},
		get:   func(ctx context.Context, name string) (*T, error) { return client.Get(ctx, name, metav1.GetOptions{}) },
		watch: client.Watch,
	}
}

// metaOf returns the metadata of an object of a typed client.
func metaOf[T any](item *T) metav1.Object {
	meta, _ := any(item).(metav1.Object)
	return meta
}
