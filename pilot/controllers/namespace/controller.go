package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// Controller keeps the CA bundle in every namespace. Its keys are their names.
type Controller struct {
	loop       *reconcile.Controller[string]
	config     Config
	excluded   sets.Set[string]
	bundle     *bundle
	namespaces *reconcile.Cache[string, *corev1.Namespace]
	configMaps *reconcile.Cache[string, *corev1.ConfigMap]
}

// New checks the configuration and starts nothing. The controller reads and writes
// through client alone.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	config = config.withDefaults()
	c := &Controller{
		config: config, excluded: sets.New(config.Excluded...),
		bundle: &bundle{file: config.BundleFile, log: config.Logger, read: readBundle},
	}
	var err error
	c.loop, err = reconcile.New(client, reconcile.Config[string]{
		Name: name, Reconcile: c.reconcile, Idle: "no bundle is spread", Workers: config.Workers, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	core := c.loop.Client().Kube().CoreV1()
	c.namespaces = reconcile.Watch(c.loop, reconcile.Kind[string, *corev1.Namespace]{
		Name: "namespaces", From: reconcile.From(core.Namespaces(), reconcile.Selector{}), Keep: slimNamespace,
		Keys: func(n *corev1.Namespace) []string { return []string{n.Name} },
	})
	c.configMaps = reconcile.Watch(c.loop, reconcile.Kind[string, *corev1.ConfigMap]{
		Name: "configmaps", From: reconcile.From(core.ConfigMaps(""), reconcile.Selector{Fields: "metadata.name=" + ConfigMapName}),
		Keep: slimConfigMap(c.bundle.current),
		Keys: func(m *corev1.ConfigMap) []string { return []string{m.Namespace} },
	})
	return c, nil
}

// Warm fills the caches, so that a Run later starts at once, and looks at the bundle,
// so that a wrong file is reported before it matters. It returns when the caches are
// filled, or with ctx's error; they are kept up to date until Close in either case.
func (c *Controller) Warm(ctx context.Context) error {
	c.bundle.refresh()
	return c.loop.Warm(ctx)
}

// Close ends what Warm started, and returns when it has ended. A closed controller may
// be warmed again.
func (c *Controller) Close() { c.loop.Close() }

// Run keeps the bundle in every namespace until ctx ends. It returns nil then, when
// nothing that it started goes on and no write is under way. While there is no good
// bundle it waits for one.
func (c *Controller) Run(ctx context.Context) error {
	c.bundle.refresh()
	return c.loop.Run(ctx, func(ctx context.Context) {
		c.bundle.follow(ctx, c.config.BundleInterval, func() { c.loop.EnqueueAll() })
	})
}

// slimNamespace keeps what the controller looks at.
func slimNamespace(namespace *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: reconcile.Meta(namespace.ObjectMeta), Status: corev1.NamespaceStatus{Phase: namespace.Status.Phase}}
}

// slimConfigMap keeps what the controller looks at, and a bundle that is the one in
// force as that very string.
func slimConfigMap(current func() string) func(*corev1.ConfigMap) *corev1.ConfigMap {
	return func(configMap *corev1.ConfigMap) *corev1.ConfigMap {
		slim := &corev1.ConfigMap{ObjectMeta: reconcile.Meta(configMap.ObjectMeta), Immutable: configMap.Immutable}
		if value, ok := configMap.Data[BundleKey]; ok {
			if in := current(); in == value {
				value = in
			}
			slim.Data = map[string]string{BundleKey: value}
		}
		return slim
	}
}
