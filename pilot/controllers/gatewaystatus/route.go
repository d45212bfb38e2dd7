package gatewaystatus

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// parentGateway returns the Gateway of a parentRef. If the parent is not a Gateway, ok is false.
func parentGateway(r *route, ref gateway.ParentReference) (name types.NamespacedName, ok bool) {
	name = types.NamespacedName{Namespace: string(ptr.Deref(ref.Namespace, gateway.Namespace(r.Namespace))), Name: string(ref.Name)}
	return name, ptr.Deref(ref.Group, gateway.GroupName) == gateway.GroupName && ptr.Deref(ref.Kind, gatewayKind) == gatewayKind
}

func refersTo(r *route, ref gateway.ParentReference, g *gateway.Gateway) bool {
	name, ok := parentGateway(r, ref)
	return ok && name.Namespace == g.Namespace && name.Name == g.Name
}

// routeParents returns the desired entries for the Gateways of the revision in the status of a route, without
// times, in the order of parentRefs. The revision of the route has no effect.
func routeParents(v view, r *route) []gateway.RouteParentStatus {
	var all []gateway.RouteParentStatus
	filter, reference := unknownFilter(r), unresolved(v, r)
	listeners := map[types.NamespacedName][]listener{} // many parentRefs can have one Gateway
	for _, ref := range r.Spec.ParentRefs {
		name, ok := parentGateway(r, ref)
		if !ok {
			continue
		}
		g := v.gateway(name.Namespace, name.Name)
		if !ours(v, g) {
			continue
		}
		if listeners[name] == nil {
			listeners[name] = listenersOf(v, g)
		}
		_, unattached := attach(v, r, ref, g, listeners[name])
		all = append(all, gateway.RouteParentStatus{ParentRef: ref, ControllerName: reconcile.GatewayController, Conditions: []metav1.Condition{
			holds(gateway.RouteConditionAccepted, cmp.Or(unattached, filter), gateway.RouteReasonAccepted, r.Generation),
			holds(gateway.RouteConditionResolvedRefs, reference, gateway.RouteReasonResolvedRefs, r.Generation),
		}})
	}
	return all
}

// unknownFilter returns a problem if a filter of a route has an unknown type, or nil.
func unknownFilter(r *route) *problem {
	for _, filter := range filters(r) {
		if !slices.Contains(filterTypes, filter.Type) {
			return problemf(gateway.RouteReasonUnsupportedValue, "filter type %s is not supported", filter.Type)
		}
	}
	return nil
}

// obsolete reports whether an existing entry that is not desired must be removed. The revision of an existing
// Gateway decides. With verify, the entry must stay if the API server has the Gateway: the cache may be late.
func obsolete(v view, r *route, parent gateway.ParentReference) (remove, verify bool) {
	name, ok := parentGateway(r, parent)
	if !ok {
		return false, false
	}
	referenced := slices.ContainsFunc(r.Spec.ParentRefs, func(ref gateway.ParentReference) bool { return sameRef(r, ref, parent) })
	g := v.gateway(name.Namespace, name.Name)
	switch {
	case g == nil:
		return true, referenced
	case !mine(v, g.ObjectMeta):
		return false, false
	case v.class(string(g.Spec.GatewayClassName)) == nil && g.Spec.GatewayClassName != reconcile.GatewayClass:
		return !referenced, false // a missing class changes no Gateway that was accepted
	}
	return true, false
}

// sameRef reports whether two references of a route are equal after defaulting.
func sameRef(r *route, a, b gateway.ParentReference) bool {
	return equality.Semantic.DeepEqual(plainRef(r, a), plainRef(r, b))
}

// unresolved returns the first problem with a reference of a route, or nil.
func unresolved(v view, r *route) *problem {
	granted := grantsFor(v, r.Kind, r.Namespace)
	for _, ref := range backends(r) {
		if p := backendProblem(v, r, granted, ref); p != nil {
			return p
		}
	}
	for _, filter := range filters(r) {
		if ref := filter.ExtensionRef; ref != nil {
			return problemf(gateway.RouteReasonInvalidKind, "filter %s of kind %s.%s is not implemented; remove it", ref.Name, ref.Kind, ref.Group)
		}
	}
	return nil
}

// attach returns the indexes of the listeners to which a parentRef attaches a route, or a problem.
func attach(v view, r *route, ref gateway.ParentReference, g *gateway.Gateway, listeners []listener) (on []int, p *problem) {
	matching := 0
	allowed := 0
	var namespaceLabels map[string]string
	if namespace := v.namespace(r.Namespace); namespace != nil {
		namespaceLabels = namespace.Labels
	}
	for i := range listeners {
		l := &listeners[i]
		if ref.SectionName != nil && *ref.SectionName != l.Name || ref.Port != nil && *ref.Port != l.Port {
			continue
		}
		matching++
		if !l.allows(g, r, namespaceLabels) {
			continue
		}
		allowed++
		if hostsIntersect(string(ptr.Deref(l.Hostname, "")), r.Spec.Hostnames) {
			on = append(on, i)
		}
	}
	switch {
	case matching == 0:
		return nil, problemf(gateway.RouteReasonNoMatchingParent, "Gateway %s/%s has no listener with this name and port", g.Namespace, g.Name)
	case allowed == 0:
		return nil, problemf(gateway.RouteReasonNotAllowedByListeners, "no such listener of Gateway %s/%s allows a %s of namespace %s", g.Namespace, g.Name, r.Kind, r.Namespace)
	case len(on) == 0:
		return nil, problemf(gateway.RouteReasonNoMatchingListenerHostname, "no hostname of the route matches a listener of Gateway %s/%s", g.Namespace, g.Name)
	}
	return on, nil
}

// hostsIntersect reports whether the hostnames of a listener and a route have a host in common. An empty
// value means all hosts.
func hostsIntersect(listener string, route []gateway.Hostname) bool {
	return listener == "" || len(route) == 0 || slices.ContainsFunc(route, func(host gateway.Hostname) bool {
		return hostMatches(listener, string(host)) || hostMatches(string(host), listener)
	})
}

// hostMatches reports whether a pattern, which may start with "*.", includes all hosts of another. The star
// matches at least one label. The API server accepts only lower case.
func hostMatches(pattern, host string) bool {
	if suffix, wild := strings.CutPrefix(pattern, "*"); wild {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return pattern == host
}
