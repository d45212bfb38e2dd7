package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// between is the time between two writes.
	between = 250 * time.Millisecond
	// writeLimit bounds one write with its retries.
	writeLimit = time.Minute
	// mostObjects is the maximum number of objects of a kind.
	mostObjects, mostGateways = 6, 3
)

// Writer creates, edits and deletes namespaces, Ingresses, Gateways and routes at random.
type Writer struct {
	Objects dynamic.Interface
	// Seed determines the operations and their order.
	Seed uint64
	// Bundle is the name of the distributed ConfigMap. The writer changes or deletes some of them.
	Bundle string
	// WithoutGateways limits it to namespaces and Ingresses.
	WithoutGateways bool

	random *rand.Rand
	made   int
	there  map[string][]place // by kind
	writes int
}

// prefix begins the name of each object; a number follows.
const prefix = "w"

// Wrote reports whether a writer creates namespaces of that name.
func Wrote(namespace string) bool {
	rest, ok := strings.CutPrefix(namespace, prefix)
	_, err := strconv.Atoi(rest)
	return ok && err == nil
}

// place identifies an object. A namespace is in no namespace.
type place struct{ namespace, name string }

// kind is a kind of object.
type kind struct {
	schema.GroupVersionResource
	object func(meta metav1.ObjectMeta, parent string) runtime.Object
	// patch changes an object so that a controller has to reconcile it. It has a number.
	patch string
}

var (
	gatewayVersion = schema.GroupVersion(gateway.GroupVersion)
	configMaps     = corev1.SchemeGroupVersion.WithResource("configmaps")
	kinds          = map[string]kind{
		"namespace": {corev1.SchemeGroupVersion.WithResource("namespaces"), func(meta metav1.ObjectMeta, _ string) runtime.Object {
			return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: meta}
		}, ""},
		"ingress": {networkingv1.SchemeGroupVersion.WithResource("ingresses"), func(meta metav1.ObjectMeta, _ string) runtime.Object {
			return Ingress(meta)
		}, `{"metadata":{"annotations":{"edited":"%d"}}}`},
		"gateway": {gatewayVersion.WithResource("gateways"), func(meta metav1.ObjectMeta, _ string) runtime.Object {
			return Gateway(meta, "")
		}, `{"spec":{"infrastructure":{"labels":{"edited":"n%d"}}}}`},
		"route": {gatewayVersion.WithResource("httproutes"), func(meta metav1.ObjectMeta, parent string) runtime.Object {
			return Route(meta, parent)
		}, `{"spec":{"hostnames":["h%d.example"]}}`},
	}
)

// client returns the client for an object of a kind.
func (w *Writer) client(kind string, at place) dynamic.ResourceInterface {
	return w.Objects.Resource(kinds[kind].GroupVersionResource).Namespace(at.namespace)
}

// Run writes until ctx ends. It retries while the API server is unavailable, and returns any other error.
func (w *Writer) Run(ctx context.Context) error {
	w.random, w.there = rand.New(rand.NewPCG(w.Seed, 0)), map[string][]place{}
	tick := time.NewTicker(between)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.step(ctx); err != nil {
			return fmt.Errorf("write %[2]d of seed %[1]d: %[3]w", w.Seed, w.writes, err)
		}
	}
}

// step does one operation. It finishes after ctx has ended, so that the writer knows which objects exist.
func (w *Writer) step(ctx context.Context) error {
	names := []string{"namespace", "ingress", "gateway", "route"}
	if w.WithoutGateways {
		names = names[:2]
	}
	kind := names[w.random.IntN(len(names))]
	if len(w.there["namespace"]) == 0 {
		kind = "namespace"
	}
	most := mostObjects
	if kind == "gateway" {
		most = mostGateways
	}
	what := w.random.IntN(3)
	there := w.there[kind]
	var do func(context.Context) error
	switch n := len(there); {
	case n == 0 || n < most && what == 0:
		do = w.create(kind)
	case what == 1 || n < 2:
		do = w.edit(kind, there[w.random.IntN(n)])
	default:
		do = w.remove(kind, w.random.IntN(n))
	}
	w.writes++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	for {
		err := do(ctx)
		if !temporary(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(between):
		}
	}
}

// temporary reports whether a retry of a write may succeed.
func temporary(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) ||
		status.Status().Code >= http.StatusInternalServerError)
}

// unless returns err, or nil if an earlier attempt has already done the write.
func unless(err error, already func(error) bool) error {
	if already(err) {
		return nil
	}
	return err
}

func (w *Writer) create(kind string) func(context.Context) error {
	w.made++
	at := place{name: fmt.Sprint(prefix, w.made)}
	parent := ""
	switch namespaces, gateways := w.there["namespace"], w.there["gateway"]; {
	case kind == "route" && len(gateways) == 0:
		return func(context.Context) error { return nil }
	case kind == "route": // it is in the namespace of its Gateway
		of := gateways[w.random.IntN(len(gateways))]
		at.namespace, parent = of.namespace, of.name
	case kind != "namespace":
		at.namespace = namespaces[w.random.IntN(len(namespaces))].name
	}
	w.there[kind] = append(w.there[kind], at)
	return func(ctx context.Context) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kinds[kind].object(metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}, parent))
		if err != nil {
			return err
		}
		_, err = w.client(kind, at).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		return unless(err, apierrors.IsAlreadyExists)
	}
}

// edit changes an object so that a controller has to reconcile it. In a namespace it changes or deletes the bundle.
func (w *Writer) edit(kind string, at place) func(context.Context) error {
	n := w.random.IntN(1000)
	spoil := w.random.IntN(2) == 0
	client, name, patch := w.client(kind, at), at.name, fmt.Sprintf(kinds[kind].patch, n)
	var subresources []string
	switch {
	case kind == "namespace":
		client, name, patch = w.Objects.Resource(configMaps).Namespace(at.name), w.Bundle, fmt.Sprintf(`{"data":{"root-cert.pem":"changed %d"}}`, n)
	case kind == "ingress" && spoil:
		patch, subresources = `{"status":{"loadBalancer":{"ingress":null}}}`, []string{"status"}
	}
	return func(ctx context.Context) error {
		if kind == "namespace" && spoil {
			return unless(client.Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound)
		}
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return unless(err, apierrors.IsNotFound)
	}
}

func (w *Writer) remove(kind string, i int) func(context.Context) error {
	at := w.there[kind][i]
	w.there[kind] = slices.Delete(w.there[kind], i, i+1)
	if kind == "namespace" {
		for other := range kinds {
			w.there[other] = slices.DeleteFunc(w.there[other], func(p place) bool { return p.namespace == at.name })
		}
	}
	return func(ctx context.Context) error {
		return unless(w.client(kind, at).Delete(ctx, at.name, metav1.DeleteOptions{}), apierrors.IsNotFound)
	}
}

// Ingress returns an Ingress of class istio.
func Ingress(meta metav1.ObjectMeta) *networkingv1.Ingress {
	class := "istio"
	return &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: meta,
		Spec: networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "app", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}},
	}
}

// Gateway returns a Gateway with one listener, and with the overlay of a ConfigMap unless overlay is "".
func Gateway(meta metav1.ObjectMeta, overlay string) *gateway.Gateway {
	g := &gateway.Gateway{
		TypeMeta:   metav1.TypeMeta{APIVersion: gateway.GroupVersion.String(), Kind: "Gateway"},
		ObjectMeta: meta,
		Spec: gateway.GatewaySpec{
			GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: Port, Protocol: gateway.HTTPProtocolType}},
		},
	}
	if overlay != "" {
		g.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: overlay}}
	}
	return g
}

// Port is the port of each listener.
const Port = 8080

// Route returns a route of a Gateway in its namespace.
func Route(meta metav1.ObjectMeta, parent string) *gateway.HTTPRoute {
	return &gateway.HTTPRoute{
		TypeMeta:   metav1.TypeMeta{APIVersion: gateway.GroupVersion.String(), Kind: "HTTPRoute"},
		ObjectMeta: meta,
		Spec: gateway.HTTPRouteSpec{
			CommonRouteSpec: gateway.CommonRouteSpec{ParentRefs: []gateway.ParentReference{{Name: gateway.ObjectName(parent)}}},
		},
	}
}
