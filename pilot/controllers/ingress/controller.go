package ingress

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// Controller writes the status of Ingresses. Its keys are the names of Ingresses.
type Controller struct {
	*reconcile.Controller[key]

	config    Config
	ingresses *reconcile.Cache[key, *networkingv1.Ingress]
	classes   *reconcile.Cache[key, *networkingv1.IngressClass]
	services  *reconcile.Cache[key, *corev1.Service]
	pods      *reconcile.Cache[key, *corev1.Pod]
	nodes     *reconcile.Cache[key, *corev1.Node]
	absent    atomic.Bool // the Service does not exist, as logged
	problems  *reconcile.Problems[key]
	grace     *reconcile.Grace[key] // of the Service
}

type key = types.NamespacedName

// byClass is the index of Ingresses by the IngressClass of their spec.
const byClass = "class"

// New validates the configuration and starts nothing. All requests of the controller use client.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	config.Mode, _ = ParseMode(string(config.Mode)) // validated
	config.Logger = cmp.Or(config.Logger, slog.Default())
	c := &Controller{config: config, problems: reconcile.NewProblems[key](reconcile.ProblemsConfig{
		Begins: "Ingress gets no status", Over: "Ingress problem is solved", Event: config.Event, Logger: config.Logger,
	})}
	var err error
	c.Controller, err = reconcile.New(client, reconcile.Config[key]{
		Name: name, Namespace: func(k key) string { return k.Namespace },
		Reconcile: c.reconcile, Failing: c.failing, Idle: "no status is written", Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	c.grace = reconcile.NewGrace(func(key) { c.EnqueueAll() })
	c.watch()
	return c, nil
}

// watch declares the caches of the controller.
func (c *Controller) watch() {
	core, networking := c.Client().Kube().CoreV1(), c.Client().Kube().NetworkingV1()
	c.ingresses = reconcile.Watch(c.Controller, reconcile.Kind[key, *networkingv1.Ingress]{
		Name: "ingresses", From: reconcile.From(networking.Ingresses(""), reconcile.Selector{}), Keep: slimIngress,
		Keys: func(i *networkingv1.Ingress) []key { return []key{nameOf(i)} },
		Indexes: map[string]func(*networkingv1.Ingress) []string{byClass: func(i *networkingv1.Ingress) []string {
			if i.Spec.IngressClassName == nil {
				return nil
			}
			return []string{*i.Spec.IngressClassName}
		}},
	})
	c.classes = reconcile.Watch(c.Controller, reconcile.Kind[key, *networkingv1.IngressClass]{
		Name: "ingressclasses", From: reconcile.From(networking.IngressClasses(), reconcile.Selector{}), Keep: slimClass,
		Keys: func(class *networkingv1.IngressClass) []key { return names(c.ingresses.By(byClass, class.Name)) },
	})
	if c.config.Pods == nil {
		c.services = reconcile.Watch(c.Controller, reconcile.Kind[key, *corev1.Service]{
			Name: "services", From: reconcile.From(core.Services(c.config.Service.Namespace), reconcile.Selector{Fields: "metadata.name=" + c.config.Service.Name}),
			Keep: slimService, Keys: func(*corev1.Service) []key { return names(c.ingresses.List()) },
		})
	}
	c.pods = reconcile.Watch(c.Controller, reconcile.Kind[key, *corev1.Pod]{
		Name: "pods", From: reconcile.From(core.Pods(c.config.Service.Namespace), reconcile.Selector{}), Keep: slimPod,
		Keys: func(p *corev1.Pod) []key {
			if service := c.service(); service == nil || !selects(service, p) {
				return nil
			}
			return c.affectedByNodes()
		},
	})
	c.nodes = reconcile.Watch(c.Controller, reconcile.Kind[key, *corev1.Node]{
		Name: "nodes", From: reconcile.From(core.Nodes(), reconcile.Selector{}), Keep: slimNode,
		Keys: func(*corev1.Node) []key { return c.affectedByNodes() },
	})
}

// affectedByNodes returns all Ingresses if they have addresses of nodes, or none. With a load
// balancer, changes of pods cause no reconcile.
func (c *Controller) affectedByNodes() []key {
	service := c.service()
	if service == nil || len(addressesOf(service, nil, nil)) > 0 {
		return nil
	}
	return names(c.ingresses.List())
}

func nameOf(o metav1.Object) key { return key{Namespace: o.GetNamespace(), Name: o.GetName()} }

func names(ingresses []*networkingv1.Ingress) []key {
	all := make([]key, 0, len(ingresses))
	for _, i := range ingresses {
		all = append(all, nameOf(i))
	}
	return all
}

// service returns the Service of the gateway, or nil if it does not exist. For Pods without a Service it returns a Service that
// selects them and has no addresses of its own.
func (c *Controller) service() *corev1.Service {
	if c.config.Pods != nil {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: "none"}, Spec: corev1.ServiceSpec{Selector: c.config.Pods}}
	}
	return c.services.Get(c.config.Service.Namespace, c.config.Service.Name)
}

// reconcile updates the status of one Ingress.
func (c *Controller) reconcile(ctx context.Context, name key) error {
	target := c.ingresses.At(name, reconcile.Ref{Namespace: name.Namespace, Name: name.Name})
	have, known := target.Latest()
	if !known {
		return nil
	}
	if have == nil || have.DeletionTimestamp != nil {
		c.problems.Report(name, nil)
		return nil
	}
	class := c.class(have)
	c.problems.Report(name, have, unknownClass(c.config.Mode, have, class))
	if !ours(c.config.Mode, c.config.Class, have, class) {
		return nil
	}
	wanted, known := c.addresses()
	if !known || equality.Semantic.DeepEqual(have.Status.LoadBalancer.Ingress, wanted) {
		return nil
	}
	// A patch keeps the fields that the cache drops. Version and UID make the API server reject it
	// if the Ingress has changed.
	body := reconcile.MergePatch(have, nil, map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": wanted}}})
	got, err := c.Client().Kube().NetworkingV1().Ingresses(name.Namespace).
		Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return target.Answered(have, got, err, "update status of Ingress "+name.String())
}

// class returns the IngressClass of an Ingress, or nil if the spec names no class or a missing class.
func (c *Controller) class(ingress *networkingv1.Ingress) *networkingv1.IngressClass {
	if ingress.Spec.IngressClassName == nil {
		return nil
	}
	return c.classes.Get("", *ingress.Spec.IngressClassName)
}

// addresses returns the addresses of the Service, and logs a change of its existence. known is false while Ingresses keep theirs.
func (c *Controller) addresses() (all []address, known bool) {
	service := c.service()
	if absent := service == nil; c.absent.Swap(absent) != absent {
		if absent {
			c.config.Logger.Warn("gateway Service does not exist; Ingresses keep their status", "service", c.config.Service)
		} else {
			c.config.Logger.Info("gateway Service exists now", "service", c.config.Service)
		}
	}
	if service == nil {
		return nil, false
	}
	all = addressesOf(service, c.pods.List(), func(name string) *corev1.Node { return c.nodes.Get("", name) })
	// A Service that was recreated gets its addresses later.
	return all, !c.grace.Keeps(c.config.Service, service.UID, len(all) > 0)
}

// failing records an Event with the error on an Ingress.
func (c *Controller) failing(name key, err error) {
	if ingress := c.ingresses.Get(name.Namespace, name.Name); ingress != nil {
		c.problems.Failed(ingress, reasonNotWritten, err)
	}
}
