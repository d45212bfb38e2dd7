package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"
)

// writeLimit bounds one write with its retries.
const writeLimit = time.Minute

// Writer creates, edits and deletes namespaces, Ingresses, Gateways and routes at random.
type Writer struct {
	Kube     kubernetes.Interface
	Gateways gatewayclient.GatewayV1Interface
	// Seed determines the operations and their order.
	Seed uint64
	// Every is the time between two writes.
	Every time.Duration
	// Bundle is the name of the distributed ConfigMap. The writer changes or deletes some of them.
	Bundle string
	// Most is the maximum number of objects of a kind. For Gateways it is half of that.
	Most int
	// WithoutGateways limits it to namespaces and Ingresses.
	WithoutGateways bool

	random *rand.Rand
	made   int
	there  map[string][]place // by kind

	mu     sync.Mutex
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

// place identifies an object.
type place struct{ namespace, name string }

// Writes returns the number of writes so far.
func (w *Writer) Writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// Run writes until ctx ends. It retries while the API server is unavailable, and returns any other error.
func (w *Writer) Run(ctx context.Context) error {
	w.random, w.there = rand.New(rand.NewPCG(w.Seed, 0)), map[string][]place{}
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.step(ctx); err != nil {
			return fmt.Errorf("write %[2]d of seed %[1]d: %[3]w", w.Seed, w.Writes(), err)
		}
	}
}

// step does one operation. It finishes after ctx has ended, so that the writer knows which objects exist.
func (w *Writer) step(ctx context.Context) error {
	kinds := []string{"namespace", "ingress", "gateway", "route"}
	if w.WithoutGateways {
		kinds = kinds[:2]
	}
	kind := kinds[w.random.IntN(len(kinds))]
	if len(w.there["namespace"]) == 0 {
		kind = "namespace"
	}
	most := w.Most
	if kind == "gateway" {
		most = max(1, w.Most/2)
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
	w.mu.Lock()
	w.writes++
	w.mu.Unlock()
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
		case <-time.After(w.Every):
		}
	}
}

// temporary reports whether a retry of a write may succeed.
func temporary(err error) bool {
	var status apierrors.APIStatus
	return err != nil && (!errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err))
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
	if kind == "namespace" {
		at.namespace = at.name
	} else {
		all := w.there["namespace"]
		at.namespace = all[w.random.IntN(len(all))].name
	}
	w.there[kind] = append(w.there[kind], at)
	parent := at.name
	if gateways := w.there["gateway"]; kind == "route" && len(gateways) > 0 {
		// A route is in the namespace of its Gateway.
		of := gateways[w.random.IntN(len(gateways))]
		at.namespace, parent = of.namespace, of.name
		w.there[kind][len(w.there[kind])-1] = at
	} else if kind == "route" {
		w.there[kind] = w.there[kind][:len(w.there[kind])-1]
		return func(context.Context) error { return nil } // there is no Gateway
	}
	meta := metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}
	return func(ctx context.Context) error {
		var err error
		switch kind {
		case "namespace":
			_, err = w.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.name}}, metav1.CreateOptions{})
		case "ingress":
			_, err = w.Kube.NetworkingV1().Ingresses(at.namespace).Create(ctx, Ingress(meta), metav1.CreateOptions{})
		case "gateway":
			_, err = w.Gateways.Gateways(at.namespace).Create(ctx, Gateway(meta, ""), metav1.CreateOptions{})
		case "route":
			_, err = w.Gateways.HTTPRoutes(at.namespace).Create(ctx, Route(meta, parent), metav1.CreateOptions{})
		}
		return unless(err, apierrors.IsAlreadyExists)
	}
}

// edit changes an object so that a controller has to reconcile it.
func (w *Writer) edit(kind string, at place) func(context.Context) error {
	n := w.random.IntN(1000)
	spoil := w.random.IntN(2) == 0
	return func(ctx context.Context) error {
		var err error
		switch kind {
		case "namespace":
			err = w.editBundle(ctx, at.name, n, spoil)
		case "ingress":
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"edited":"%d"}}}`, n)
			if spoil {
				_, err = w.Kube.NetworkingV1().Ingresses(at.namespace).Patch(ctx, at.name, types.MergePatchType, []byte(`{"status":{"loadBalancer":{"ingress":null}}}`), metav1.PatchOptions{}, "status")
				break
			}
			_, err = w.Kube.NetworkingV1().Ingresses(at.namespace).Patch(ctx, at.name, types.MergePatchType, patch, metav1.PatchOptions{})
		case "gateway":
			patch := fmt.Appendf(nil, `{"spec":{"infrastructure":{"labels":{"edited":"n%d"}}}}`, n)
			_, err = w.Gateways.Gateways(at.namespace).Patch(ctx, at.name, types.MergePatchType, patch, metav1.PatchOptions{})
		case "route":
			patch := fmt.Appendf(nil, `{"spec":{"hostnames":["h%d.example"]}}`, n)
			_, err = w.Gateways.HTTPRoutes(at.namespace).Patch(ctx, at.name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return unless(err, apierrors.IsNotFound)
	}
}

func (w *Writer) editBundle(ctx context.Context, namespace string, n int, spoil bool) error {
	maps := w.Kube.CoreV1().ConfigMaps(namespace)
	if spoil {
		return unless(maps.Delete(ctx, w.Bundle, metav1.DeleteOptions{}), apierrors.IsNotFound)
	}
	_, err := maps.Patch(ctx, w.Bundle, types.MergePatchType, fmt.Appendf(nil, `{"data":{"root-cert.pem":"changed %d"}}`, n), metav1.PatchOptions{})
	return unless(err, apierrors.IsNotFound)
}

func (w *Writer) remove(kind string, i int) func(context.Context) error {
	at := w.there[kind][i]
	w.there[kind] = slices.Delete(w.there[kind], i, i+1)
	if kind == "namespace" {
		for _, other := range slices.Collect(maps.Keys(w.there)) {
			w.there[other] = slices.DeleteFunc(w.there[other], func(p place) bool { return p.namespace == at.name })
		}
	}
	return func(ctx context.Context) error {
		var err error
		switch kind {
		case "namespace":
			err = w.Kube.CoreV1().Namespaces().Delete(ctx, at.name, metav1.DeleteOptions{})
		case "ingress":
			err = w.Kube.NetworkingV1().Ingresses(at.namespace).Delete(ctx, at.name, metav1.DeleteOptions{})
		case "gateway":
			err = w.Gateways.Gateways(at.namespace).Delete(ctx, at.name, metav1.DeleteOptions{})
		case "route":
			err = w.Gateways.HTTPRoutes(at.namespace).Delete(ctx, at.name, metav1.DeleteOptions{})
		}
		return unless(err, apierrors.IsNotFound)
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
