package gatewaystatus

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// key is an object whose status is written.
type key struct{ kind, namespace, name string }

const classKind = "GatewayClass"

// Controller writes the status of GatewayClasses, Gateways and HTTPRoutes.
type Controller struct {
	loop   *reconcile.Controller[key]
	config Config
	api    versioned.GatewayV1Interface
	caches
	problems *reconcile.Problems[key]
	// retagged has room for one: the tags have changed.
	retagged chan struct{}
}

// New checks the configuration and starts nothing. The controller reads and writes through
// client alone.
func New(client kube.Client, config Config) (*Controller, error) {
	return newController(client, config, func(config *rest.Config) (versioned.GatewayV1Interface, error) { return versioned.NewForConfig(config) })
}

func newController(client kube.Client, config Config, connect func(*rest.Config) (versioned.GatewayV1Interface, error)) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	config = config.withDefaults()
	c := &Controller{config: config, retagged: make(chan struct{}, 1), problems: reconcile.NewProblems[key](reconcile.ProblemsConfig{
		Begins: "no status, or not all of it, is written", Over: "the status can be written again", Event: config.Event, Logger: config.Logger,
	})}
	var await func(context.Context)
	if tags, ok := config.Tags.(revisions.Awaiter); ok {
		await = tags.AwaitCurrent
	}
	var err error
	c.loop, err = reconcile.New(client, reconcile.Config[key]{
		Name: name, Reconcile: c.reconcile, Await: await, Failing: c.failing, Idle: "no status of Gateways and routes is written",
		Workers: config.Workers, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	if c.api, err = connect(c.loop.Client().RESTConfig()); err != nil {
		return nil, fmt.Errorf("%s: making a client of the Gateway API: %w", name, err)
	}
	c.watch(c.loop, c.api, c.loop.Client().Kube(), config.Tags)
	config.Tags.AddHandler(func(sets.Set[string]) {
		select {
		case c.retagged <- struct{}{}:
		default:
		}
	})
	return c, nil
}

// Warm fills the caches, so that a Run later starts at once. It returns when they are filled, or with
// ctx's error; they are kept up to date until Close in either case.
func (c *Controller) Warm(ctx context.Context) error { return c.loop.Warm(ctx) }

// Close ends what Warm started, and returns when it has ended. A closed controller may be warmed again.
func (c *Controller) Close() { c.loop.Close() }

// Problem is what keeps caches from being filled or up to date, nil when nothing does.
func (c *Controller) Problem() error { return c.loop.Problem() }

// Run writes statuses until ctx ends. It returns nil then, when nothing that it started goes on and
// no write is under way.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.Run(ctx, func(ctx context.Context) {
		c.loop.Enqueue(key{classKind, "", ClassName})
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.retagged:
				c.loop.EnqueueAll(key{classKind, "", ClassName})
			}
		}
	})
}

// reconcile writes the status of one object, if it should and is not as it should be.
func (c *Controller) reconcile(ctx context.Context, k key) error {
	if !c.config.Tags.HasSynced() {
		return nil // the watcher tells when it has
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

// failing is called when writes for an object begin to fail.
func (c *Controller) failing(k key, err error) {
	if o := c.object(k); o != nil {
		c.problems.Failed(reference(k, o), ReasonNotWritten, err)
	}
}

// object is the one of a key, nil when there is none.
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
		if route := c.routeCache.Get(k.namespace, k.name); route != nil {
			return route
		}
	}
	return nil
}

// reference is what an Event is about.
func reference(k key, o metav1.Object) *corev1.ObjectReference {
	return reconcile.Reference(gateway.GroupVersion.String(), k.kind, o)
}

// lives reports whether an object's namespace exists and will go on to.
func lives(namespace *corev1.Namespace) bool {
	return namespace != nil && namespace.DeletionTimestamp == nil
}
