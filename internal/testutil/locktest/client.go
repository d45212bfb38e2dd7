package locktest

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ConfigMaps implements ConfigMapsGetter.
func (c *Client) ConfigMaps(string) corev1client.ConfigMapInterface {
	return struct {
		typed[*corev1.ConfigMap]
		unusedConfigMaps
	}{typed: typed[*corev1.ConfigMap]{c}}
}

// Leases implements LeasesGetter.
func (c *Client) Leases(string) coordinationv1client.LeaseInterface {
	return struct {
		typed[*coordinationv1.Lease]
		unusedLeases
	}{typed: typed[*coordinationv1.Lease]{c}}
}

// The methods that locks do not use. The embedded interfaces are nil.
type (
	unusedConfigMaps struct {
		corev1client.ConfigMapInterface
	}
	unusedLeases struct {
		coordinationv1client.LeaseInterface
	}
)

// typed converts the objects of the store to the type of the client.
type typed[T Object] struct{ *Client }

func (t typed[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return as[T](t.exchange(ctx, Get, func() (Object, error) { return t.store.get(name) }))
}

func (t typed[T]) Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error) {
	sent := clone(obj) // which may arrive when its caller has long changed it
	return as[T](t.exchange(ctx, Create, func() (Object, error) { return t.store.create(t.name, sent, len(opts.DryRun) > 0) }))
}

func (t typed[T]) Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error) {
	sent := clone(obj)
	return as[T](t.exchange(ctx, Update, func() (Object, error) { return t.store.update(t.name, sent, len(opts.DryRun) > 0) }))
}

func (t typed[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	var w *watcher
	_, err := t.exchange(ctx, Watch, func() (_ Object, err error) {
		w, err = t.store.watch(ctx, t.Client, opts)
		return nil, err
	})
	if err != nil {
		if w != nil { // accepted, but the reply was lost
			w.Stop()
		}
		return nil, err
	}
	return w, nil
}

func as[T Object](obj Object, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	return obj.(T), nil
}
