package apiserver

import (
	"context"
	"net/url"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Object is an object with a type, such as a *corev1.ConfigMap.
type Object interface {
	runtime.Object
	metav1.Object
}

// ConfigMaps implements ConfigMapsGetter.
func (c *Client) ConfigMaps(namespace string) corev1client.ConfigMapInterface {
	return struct {
		typed[*corev1.ConfigMap]
		unusedConfigMaps
	}{typed: typed[*corev1.ConfigMap]{c, namespace, func() *corev1.ConfigMap { return &corev1.ConfigMap{} }}}
}

// Leases implements LeasesGetter.
func (c *Client) Leases(namespace string) coordinationv1client.LeaseInterface {
	return struct {
		typed[*coordinationv1.Lease]
		unusedLeases
	}{typed: typed[*coordinationv1.Lease]{c, namespace, func() *coordinationv1.Lease { return &coordinationv1.Lease{} }}}
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

// typed is a client of one kind.
type typed[T Object] struct {
	client    *Client
	namespace string
	empty     func() T
}

func (t typed[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return t.exchange(ctx, "get", name, nil, nil)
}

func (t typed[T]) Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error) {
	return t.exchange(ctx, "create", o.GetName(), contentOf(o), url.Values{"dryRun": opts.DryRun})
}

func (t typed[T]) Update(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error) {
	return t.exchange(ctx, "update", o.GetName(), contentOf(o), url.Values{"dryRun": opts.DryRun})
}

func (t typed[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	query := url.Values{"resourceVersion": {opts.ResourceVersion}, "fieldSelector": {opts.FieldSelector}, "labelSelector": {opts.LabelSelector}}
	if opts.TimeoutSeconds != nil {
		query.Set("timeoutSeconds", strconv.FormatInt(*opts.TimeoutSeconds, 10))
	}
	r := t.request("watch", "", query)
	r.convert = func(o object) runtime.Object { return t.decode(o) }
	answer, err := t.client.exchange(ctx, r)
	if err != nil {
		return nil, err
	}
	return answer.(watch.Interface), nil
}

func (t typed[T]) request(verb, name string, query url.Values) Request {
	kind := kindFor(t.empty())
	return Request{
		Verb: verb, Version: kind.GroupVersion(), Resource: plural(kind), Namespace: t.namespace, Name: name,
		URL: &url.URL{RawQuery: query.Encode()},
	}
}

func (t typed[T]) exchange(ctx context.Context, verb, name string, body map[string]any, query url.Values) (none T, err error) {
	r := t.request(verb, name, query)
	r.Body = body
	answer, err := t.client.exchange(ctx, r)
	if err != nil {
		return none, err
	}
	return t.decode(answer.(object)), nil
}

// decode returns an object as the clients of client-go do, without its kind.
func (t typed[T]) decode(o object) T {
	into := t.empty()
	decode(o, into)
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return into
}
