package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// Controller distributes the CA bundle to every namespace. Its keys are namespace names.
type Controller struct {
	*reconcile.Controller[string]

	config     Config
	excluded   sets.Set[string]
	selectors  []labels.Selector
	bundle     *bundle
	namespaces *reconcile.Cache[string, *corev1.Namespace]
	configMaps *reconcile.Cache[string, *corev1.ConfigMap]
	problems   *reconcile.Problems[string]
}

// New validates the configuration and starts nothing. All requests of the controller use client.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	config = config.withDefaults()
	c := &Controller{
		config: config, excluded: sets.New(config.Excluded...),
		bundle:   &bundle{file: config.BundleFile, log: config.Logger, read: readBundle},
		problems: reconcile.NewProblems[string](reconcile.ProblemsConfig{Event: config.Event, Logger: config.Logger}),
	}
	c.selectors, _ = config.selectors() // validated
	var err error
	c.Controller, err = reconcile.New(client, reconcile.Config[string]{
		Name: name, Reconcile: c.reconcile, Failing: c.failing, Idle: "CA bundle is not distributed", Logger: config.Logger,
		Background: func(ctx context.Context) { c.bundle.follow(ctx, func() { c.EnqueueAll() }) },
	})
	if err != nil {
		return nil, err
	}
	core := c.Client().Kube().CoreV1()
	c.namespaces = reconcile.Watch(c.Controller, reconcile.Kind[string, *corev1.Namespace]{
		Name: "namespaces", From: reconcile.From(core.Namespaces(), reconcile.Selector{}), Keep: c.slimNamespace,
		Keys: func(n *corev1.Namespace) []string { return []string{n.Name} },
	})
	c.configMaps = reconcile.Watch(c.Controller, reconcile.Kind[string, *corev1.ConfigMap]{
		Name: "configmaps", From: reconcile.From(core.ConfigMaps(""), reconcile.Selector{Fields: "metadata.name=" + ConfigMapName}),
		Keep: slimConfigMap(c.bundle.current),
		Keys: func(m *corev1.ConfigMap) []string { return []string{m.Namespace} },
	})
	return c, nil
}

// Warm reads the bundle, which reports an invalid file early, and fills the caches, so that a
// later Run starts without delay. It returns when the caches are filled, or returns the error
// of ctx. In both cases the caches stay up to date until Close.
func (c *Controller) Warm(ctx context.Context) error {
	c.bundle.refresh()
	return c.Controller.Warm(ctx)
}

// Run distributes the bundle until ctx is done. It returns nil after everything it started and
// all its writes have ended. If there is no valid bundle yet, it waits for one.
func (c *Controller) Run(ctx context.Context) error {
	c.bundle.refresh()
	return c.Controller.Run(ctx)
}

// failing records an Event with the error on the ConfigMap of a namespace. The ConfigMap may not exist.
func (c *Controller) failing(name string, err error) {
	about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: ConfigMapName}}
	if have := c.configMaps.Get(name, ConfigMapName); have != nil {
		about = have
	}
	if active(c.namespaces.Get("", name)) {
		c.problems.Failed(reconcile.Reference("v1", "ConfigMap", about), reasonNotWritten, err)
	}
}

// slimNamespace returns a namespace with only the fields that the controller reads.
func (c *Controller) slimNamespace(namespace *corev1.Namespace) *corev1.Namespace {
	slim := &corev1.Namespace{ObjectMeta: reconcile.Meta(namespace.ObjectMeta), Status: corev1.NamespaceStatus{Phase: namespace.Status.Phase}}
	if len(c.selectors) > 0 {
		slim.Labels = namespace.Labels
	}
	return slim
}

// slimConfigMap returns a function that keeps only the fields that the controller reads. A value
// that equals the current bundle shares its string, so that the cache holds the bundle once.
func slimConfigMap(current func() string) func(*corev1.ConfigMap) *corev1.ConfigMap {
	return func(configMap *corev1.ConfigMap) *corev1.ConfigMap {
		slim := &corev1.ConfigMap{ObjectMeta: reconcile.Meta(configMap.ObjectMeta), Immutable: configMap.Immutable}
		if value, ok := configMap.Data[BundleKey]; ok {
			if shared := current(); shared == value {
				value = shared
			}
			slim.Data = map[string]string{BundleKey: value}
		}
		return slim
	}
}
