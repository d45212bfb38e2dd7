package verdict

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
)

// Wanted describes the desired state of objects.
type Wanted struct {
	// Bundle is the value of BundleKey in the ConfigMap of every namespace except Excluded.
	BundleKey, Bundle string
	Excluded          []string
	// IngressAddress is the address of every Ingress.
	IngressAddress string
	// DefaultRevision deploys the Gateways without a revision.
	DefaultRevision string
}

// Objects are all objects with a desired state. Gateways and Routes may be nil.
type Objects struct {
	Namespaces  *corev1.NamespaceList
	Bundles     *corev1.ConfigMapList
	Ingresses   *networkingv1.IngressList
	Gateways    *gateway.GatewayList
	Routes      *gateway.HTTPRouteList
	Deployments *appsv1.DeploymentList
}

// Difference is a difference from the desired state.
type Difference struct{ Namespace, Text string }

// Differences returns the objects that are not in their desired state. It ignores terminating namespaces.
func (w Wanted) Differences(o Objects) (all []Difference) {
	live := map[string]bool{}
	for _, n := range o.Namespaces.Items {
		live[n.Name] = n.DeletionTimestamp == nil
	}
	add := func(kind, namespace, name, difference string) {
		if difference != "" && live[namespace] {
			all = append(all, Difference{namespace, fmt.Sprintf("%s %s/%s: %s", kind, namespace, name, difference)})
		}
	}
	for _, n := range o.Namespaces.Items {
		if !slices.Contains(w.Excluded, n.Name) {
			add("bundle", n.Name, n.Name, w.ofBundle(o, n.Name))
		}
	}
	for _, i := range o.Ingresses.Items {
		add("ingress", i.Namespace, i.Name, w.ofIngress(i))
	}
	if o.Gateways == nil {
		return all
	}
	for _, g := range o.Gateways.Items {
		add("gateway", g.Namespace, g.Name, ofGateway(g))
		add("gateway's deployment", g.Namespace, g.Name, w.ofDeployment(o, g))
	}
	for _, r := range o.Routes.Items {
		add("route", r.Namespace, r.Name, ofRoute(o, r))
	}
	return all
}

func (w Wanted) ofBundle(o Objects, namespace string) string {
	for _, bundle := range o.Bundles.Items {
		switch {
		case bundle.Namespace != namespace:
		case bundle.Data[w.BundleKey] != w.Bundle:
			return "it has other content"
		default:
			return ""
		}
	}
	return "it is missing"
}

func (w Wanted) ofIngress(i networkingv1.Ingress) string {
	switch addresses := i.Status.LoadBalancer.Ingress; {
	case len(addresses) != 1:
		return "it has no address"
	case addresses[0].IP != w.IngressAddress:
		return "it has another address"
	}
	return ""
}

func ofGateway(g gateway.Gateway) string {
	switch {
	case !holds(g.Status.Conditions, string(gateway.GatewayConditionProgrammed), g.Generation):
		return "it is not programmed"
	case len(g.Status.Addresses) == 0:
		return "it has no address"
	}
	return ""
}

func (w Wanted) ofDeployment(o Objects, g gateway.Gateway) string {
	wanted := g.Labels[tagging.Label]
	if wanted == "" {
		wanted = w.DefaultRevision
	}
	for _, d := range o.Deployments.Items {
		if d.Namespace != g.Namespace || d.Labels[gateway.GatewayNameLabelKey] != g.Name {
			continue
		}
		if got := d.Spec.Template.Annotations[tagging.Label]; got != wanted {
			return fmt.Sprintf("it is of revision %q", got)
		}
		return ""
	}
	return "it is missing"
}

// ofRoute ignores routes without Gateways, because no controller handles them. Gateways are in the namespace of the route.
func ofRoute(o Objects, r gateway.HTTPRoute) string {
	served := slices.ContainsFunc(o.Gateways.Items, func(g gateway.Gateway) bool {
		return g.Namespace == r.Namespace && slices.ContainsFunc(r.Spec.ParentRefs, func(ref gateway.ParentReference) bool { return string(ref.Name) == g.Name })
	})
	accepted := slices.ContainsFunc(r.Status.Parents, func(p gateway.RouteParentStatus) bool {
		return holds(p.Conditions, string(gateway.RouteConditionAccepted), r.Generation)
	})
	if served && !accepted {
		return "it is not accepted"
	}
	return ""
}

// holds reports whether a condition of the generation is true.
func holds(conditions []metav1.Condition, name string, generation int64) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == name && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
	})
}
