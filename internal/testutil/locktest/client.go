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
	return configMapClient{typed: typed[*corev1.ConfigMap]{c}}
}

// Leases implements LeasesGetter.
func (c *Client) Leases(string) coordinationv1client.LeaseInterface {
	return leaseClient{typed: typed[*coordinationv1.Lease]{c}}
}

// The embedded interfaces are nil. Locks do not use their other methods.
type configMapClient struct {
	corev1client.ConfigMapInterface
	typed typed[*corev1.ConfigMap]
}

func (c configMapClient) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.ConfigMap, error) {
	return c.typed.Get(ctx, name, opts)
}

func (c configMapClient) Create(ctx context.Context, obj *corev1.ConfigMap, opts metav1.CreateOptions) (*corev1.ConfigMap, error) {
	return c.typed.Create(ctx, obj, opts)
}

func (c configMapClient) Update(ctx context.Context, obj *corev1.ConfigMap, opts metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	return c.typed.Update(ctx, obj, opts)
}

func (c configMapClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.typed.Watch(ctx, opts)
}

type leaseClient struct {
	coordinationv1client.LeaseInterface
	typed typed[*coordinationv1.Lease]
}

func (c leaseClient) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.typed.Get(ctx, name, opts)
}

func (c leaseClient) Create(ctx context.Context, obj *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.typed.Create(ctx, obj, opts)
}

func (c leaseClient) Update(ctx context.Context, obj *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.typed.Update(ctx, obj, opts)
}

func (c leaseClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return c.typed.Watch(ctx, opts)
}

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
