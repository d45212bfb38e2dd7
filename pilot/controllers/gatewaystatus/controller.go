package gatewaystatus

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// key identifies an object with a status.
type key struct{ kind, namespace, name string }

const classKind = "GatewayClass"

// Controller writes the status of GatewayClasses, Gateways and routes.
type Controller struct {
	*reconcile.Controller[key]

	config Config
	api    clients
	caches
	problems *reconcile.Problems[key]
	grace    *reconcile.Grace[key] // of Services of Gateways
}

// New validates the configuration and starts nothing. All requests of the controller use client.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	config = config.withDefaults()
	c := &Controller{config: config, problems: reconcile.NewProblems[key](reconcile.ProblemsConfig{
		Begins: "status is not written completely", Over: "status is written completely again", Event: config.Event, Logger: config.Logger,
	})}
	var err error
	c.Controller, err = reconcile.New(client, reconcile.Config[key]{
		Name: name, Namespace: func(k key) string { return k.namespace },
		Reconcile: c.reconcile, Await: config.Tags.AwaitCurrent, Failing: c.failing, Idle: "no status of Gateways and routes is written",
		Background: func(context.Context) { c.Enqueue(key{classKind, "", reconcile.GatewayClass}) }, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	if c.api, err = connect(c.Client().RESTConfig()); err != nil {
		return nil, fmt.Errorf("%s: create Gateway API client: %w", name, err)
	}
	c.watch(c.Controller, c.api, c.Client().Kube(), config.Tags)
	c.grace = reconcile.NewGrace(func(k key) { c.Enqueue(k) })
	config.Tags.AddHandler(func(sets.Set[string]) { c.EnqueueAll(key{classKind, "", reconcile.GatewayClass}) })
	return c, nil
}

// reconcile updates the status of one object.
func (c *Controller) reconcile(ctx context.Context, k key) error {
	if !c.config.Tags.HasSynced() {
		return nil // the handler is called after the sync
	}
	switch k.kind {
	case classKind:
		return c.reconcileClass(ctx, k)
	case gatewayKind:
		return c.reconcileGateway(ctx, k)
	default:
		return c.reconcileRoute(ctx, k)
	}
}

// failing records an Event when writes for an object start to fail.
func (c *Controller) failing(k key, err error) {
	if o := c.object(k); o != nil {
		c.problems.Failed(reference(k, o), reasonNotWritten, err)
	}
}

// object returns the object of a key, or nil.
func (c *Controller) object(k key) metav1.Object {
	switch k.kind {
	case classKind:
		if class := c.class(k.name); class != nil {
			return class
		}
	case gatewayKind:
		if g := c.gateway(k.namespace, k.name); g != nil {
			return g
		}
	default:
		if r := c.routeCaches[k.kind].Get(k.namespace, k.name); r != nil {
			return r
		}
	}
	return nil
}

// reference returns the object of an Event.
func reference(k key, o metav1.Object) *corev1.ObjectReference {
	return reconcile.Reference(gateway.GroupVersion.String(), k.kind, o)
}

// active reports whether a namespace exists and is not being deleted.
func active(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp == nil
}
