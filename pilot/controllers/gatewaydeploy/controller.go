package gatewaydeploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// Indexes of Gateways, except byDefaults and byOwner.
const (
	byNamespace  = "namespace"
	byClass      = "class"
	byChild      = "child"      // kind, namespace and name of each child
	byOwner      = "owner"      // of children: Gateway that owns a managed object
	byLabel      = "label"      // namespace and label value of the name
	byParameters = "parameters" // ConfigMap of parametersRef
	byDefaults   = "defaults"   // of ConfigMaps: class whose defaults it contains
)

// key is the name of a Gateway.
type key = types.NamespacedName

// Controller deploys Gateways.
type Controller struct {
	*reconcile.Controller[key]

	config Config
	writer gatewayclient.GatewaysGetter

	gateways   *reconcile.Cache[key, *gateway.Gateway]
	classes    *reconcile.Cache[key, *gateway.GatewayClass]
	configMaps *reconcile.Cache[key, *corev1.ConfigMap]
	namespaces *reconcile.Cache[key, *corev1.Namespace]
	children   map[Kind]children

	problems *reconcile.Problems[key]
	fields   *fields
	objects  []Kind

	builtIn  parsed                          // template
	template func(*corev1.ConfigMap) parsed  // of the ConfigMap with the template
	overlay  func(*corev1.ConfigMap) overlay // of a ConfigMap with parameters
}

// New validates the configuration and starts nothing. All requests of the controller use client.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("gateway deployment controller: %w", err)
	}
	config = config.withDefaults()
	c := &Controller{config: config, builtIn: parsed{template: defaultTemplate()}, problems: reconcile.NewProblems[key](reconcile.ProblemsConfig{
		Begins: "Gateway cannot be deployed", Over: "Gateway can be deployed again", Event: config.Event, Logger: config.Logger,
	})}
	var err error
	c.Controller, err = reconcile.New(client, reconcile.Config[key]{
		Name: "gateway deployment controller", Reconcile: c.reconcile, Await: config.Await, First: c.incomplete, Idle: "no Gateway is deployed",
		Namespace: func(of key) string { return of.Namespace },
		Failing:   c.failing, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	writer, err := gatewayclient.NewForConfig(c.Client().RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("gateway deployment controller: %w", err)
	}
	c.writer = writer
	c.fields, err = newFields(config.OverlayFields)
	if err != nil {
		return nil, err // Validate returns it
	}
	c.objects, err = ParseKinds(config.Objects)
	if err != nil {
		return nil, err // Validate returns it
	}
	c.watch(writer)
	return c, nil
}

// watch declares the caches of the controller.
func (c *Controller) watch(reader gatewayclient.GatewayV1Interface) {
	kube := c.Client().Kube()
	c.gateways = reconcile.Watch(c.Controller, reconcile.Kind[key, *gateway.Gateway]{
		Name: "gateways", From: reconcile.From(reader.Gateways(""), reconcile.Selector{}), Keep: keepGateway,
		Keys: func(gw *gateway.Gateway) []key { return append(c.indexed(byLabel, labelled(gw)), keyOf(gw)) },
		Indexes: map[string]func(*gateway.Gateway) []string{
			byNamespace: func(gw *gateway.Gateway) []string { return []string{gw.Namespace} },
			byClass:     func(gw *gateway.Gateway) []string { return []string{string(gw.Spec.GatewayClassName)} },
			byChild: func(gw *gateway.Gateway) (children []string) {
				for _, kind := range Kinds {
					children = append(children, indexed(kind, gw.Namespace, namesOf(gw).of(kind)))
				}
				return children
			},
			byLabel: func(gw *gateway.Gateway) []string { return []string{labelled(gw)} },
			byParameters: func(gw *gateway.Gateway) []string {
				if name, _ := parametersOf(gw); name != "" {
					return []string{gw.Namespace + "/" + name}
				}
				return nil
			},
		},
	})
	c.classes = reconcile.Watch(c.Controller, reconcile.Kind[key, *gateway.GatewayClass]{
		Name: "gatewayclasses", From: reconcile.From(reader.GatewayClasses(), reconcile.Selector{}), Keep: keepClass,
		Keys: func(class *gateway.GatewayClass) []key { return c.indexed(byClass, class.Name) },
	})
	c.configMaps = reconcile.Watch(c.Controller, reconcile.Kind[key, *corev1.ConfigMap]{
		Name: "configmaps", From: reconcile.From(kube.CoreV1().ConfigMaps(""), reconcile.Selector{}),
		Keep: c.keepConfigMap, Keys: c.affected,
		Indexes: map[string]func(*corev1.ConfigMap) []string{byDefaults: func(configMap *corev1.ConfigMap) []string {
			if class := configMap.Labels[ClassDefaultsLabel]; class != "" && configMap.Namespace == c.config.Namespace {
				return []string{class}
			}
			return nil
		}},
	})
	c.template = reconcile.Derive(c.configMaps, parsedTemplate)
	c.overlay = reconcile.Derive(c.configMaps, overlayOf)
	// A Gateway without a revision label has the revision of its namespace.
	c.namespaces = reconcile.Watch(c.Controller, reconcile.Kind[key, *corev1.Namespace]{
		Name: "namespaces", From: reconcile.From(kube.CoreV1().Namespaces(), reconcile.Selector{}), Keep: keepNamespace,
		Keys: func(namespace *corev1.Namespace) []key { return c.indexed(byNamespace, namespace.Name) },
	})
	c.watchChildren(kube)
}

// watchChildren declares the caches of created objects.
func (c *Controller) watchChildren(kube kubernetes.Interface) {
	c.children = map[Kind]children{
		ServiceAccount: watchChild(c, ServiceAccount, reconcile.From(kube.CoreV1().ServiceAccounts(""), reconcile.Selector{}),
			func(o *corev1.ServiceAccount) *corev1.ServiceAccount {
				return &corev1.ServiceAccount{ObjectMeta: o.ObjectMeta, ImagePullSecrets: o.ImagePullSecrets, AutomountServiceAccountToken: o.AutomountServiceAccountToken}
			}),
		Service:    watchChild(c, Service, reconcile.From(kube.CoreV1().Services(""), reconcile.Selector{}), keepService),
		Deployment: watchChild(c, Deployment, reconcile.From(kube.AppsV1().Deployments(""), reconcile.Selector{}), keepDeployment),
		Autoscaler: watchChild(c, Autoscaler, reconcile.From(kube.AutoscalingV2().HorizontalPodAutoscalers(""), reconcile.Selector{}),
			func(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
				return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
			}),
		Budget: watchChild(c, Budget, reconcile.From(kube.PolicyV1().PodDisruptionBudgets(""), reconcile.Selector{}),
			func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
				return &policyv1.PodDisruptionBudget{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
			}),
		Policy: watchChild(c, Policy, reconcile.From(kube.NetworkingV1().NetworkPolicies(""), reconcile.Selector{}),
			func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy { return o }),
	}
}

func keyOf(o metav1.Object) key { return key{Namespace: o.GetNamespace(), Name: o.GetName()} }

func indexed(kind Kind, namespace, name string) string {
	return string(kind) + "/" + namespace + "/" + name
}

func labelled(gw *gateway.Gateway) string { return gw.Namespace + "/" + LabelValue(gw.Name) }

// indexed returns the Gateways with this value in an index.
func (c *Controller) indexed(index, value string) (keys []key) {
	for _, gw := range c.gateways.By(index, value) {
		keys = append(keys, keyOf(gw))
	}
	return keys
}

// affected returns the Gateways that depend on a ConfigMap.
func (c *Controller) affected(configMap *corev1.ConfigMap) []key {
	if c.isTemplate(configMap) {
		var all []key
		for _, gw := range c.gateways.List() {
			all = append(all, keyOf(gw))
		}
		return all
	}
	keys := c.indexed(byParameters, configMap.Namespace+"/"+configMap.Name)
	if class := configMap.Labels[ClassDefaultsLabel]; class != "" && configMap.Namespace == c.config.Namespace {
		keys = append(keys, c.indexed(byClass, class)...)
	}
	return keys
}

func (c *Controller) isTemplate(configMap *corev1.ConfigMap) bool {
	return configMap.Namespace == c.config.Namespace && configMap.Name == defaultTemplateName
}

// defaults returns the ConfigMap with the defaults of a class, or nil. Of several it returns the oldest.
func (c *Controller) defaults(class string) *corev1.ConfigMap {
	all := c.configMaps.By(byDefaults, class)
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// incomplete reports whether an object of a Gateway is missing. Such a Gateway is reconciled before
// complete ones of its namespace, whose check takes about a second per thousand.
func (c *Controller) incomplete(of key) bool {
	gw := c.gateways.Get(of.Namespace, of.Name)
	if gw == nil {
		return false
	}
	called := namesOf(gw)
	return slices.ContainsFunc(rendered, func(kind Kind) bool {
		o, _ := c.children[kind].latest(of, called.of(kind))
		return o == nil
	})
}

// reconcile deploys one Gateway.
func (c *Controller) reconcile(ctx context.Context, of key) error {
	self := c.gateways.At(of, reconcile.Ref{Namespace: of.Namespace, Name: of.Name})
	gw, known := self.Latest()
	if !known {
		return nil
	}
	if gw == nil {
		c.problems.Report(of, nil)
		return nil
	}
	view, current := c.view(of, gw)
	plan := decide(view)
	if !*current {
		return nil // a cache is stale, and its next event causes a reconcile
	}
	if plan.Version {
		// If the Gateway has changed, another controller version may serve it now.
		if written, err := c.annotate(ctx, self, gw, map[string]any{versionAnnotation: strconv.Itoa(controllerVersion)}); !written {
			return err
		}
	}
	var problems []*Problem
	var rejected []*Problem // reported by failing
	var errs []error
	noAccount := false // Pods must not run as an account that another owner created after it was read
	for _, step := range plan.Steps {
		problems = append(problems, step.Problem)
		if step.Action == actionLeave || noAccount && step.Kind == Deployment {
			continue
		}
		err := c.children[step.Kind].write(ctx, c.Client(), of, step)
		rejected = append(rejected, rejection(err))
		errs = append(errs, err)
		if step.Kind == ServiceAccount {
			account, known := c.children[ServiceAccount].latest(of, step.Name)
			noAccount = err != nil || !known || account == nil
		}
	}
	problems = append(problems, plan.Problem)
	c.problems.Report(of, reference(gw), problems...)
	if !plan.Foreign {
		errs = append(errs, c.recordProblems(ctx, self, append(rejected, problems...)))
	}
	return errors.Join(errs...)
}

// isMine reports whether a Gateway belongs to the revision, by its label or the label of its namespace. It
// returns false until the namespace is cached.
func (c *Controller) isMine(meta metav1.ObjectMeta) bool {
	namespace := c.namespaces.Get("", meta.Namespace)
	return namespace != nil && c.config.IsMine(reconcile.Inherited(meta, namespace.Labels))
}

// view returns the cached objects of a Gateway. seen becomes false if a cache is stale.
func (c *Controller) view(of key, gw *gateway.Gateway) (v view, seen *bool) {
	all := true
	v = view{
		Gateway: gw, Class: c.classes.Get("", string(gw.Spec.GatewayClassName)), IsMine: c.isMine,
		Defaults:   c.defaults(string(gw.Spec.GatewayClassName)),
		Parameters: func(name string) *corev1.ConfigMap { return c.configMaps.Get(gw.Namespace, name) },
		Overlay:    c.overlay,
		Existing: func(kind Kind, name string) metav1.Object {
			o, known := c.children[kind].latest(of, name)
			all = all && known
			return o
		},
		Owned:     func(kind Kind) []metav1.Object { return c.children[kind].owned(of) },
		SameLabel: c.gateways.By(byLabel, labelled(gw)),
		Shared: func(kind Kind, name string) bool {
			return slices.ContainsFunc(c.indexed(byChild, indexed(kind, gw.Namespace, name)), func(by key) bool { return by != of })
		},
		Fields:   c.fields,
		Objects:  c.objects,
		Revision: c.config.Revision,
	}
	v.Template, v.TemplateProblem = c.currentTemplate()
	return v, &all
}
