package gatewaystatus

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// listener is a listener of a Gateway with its problems.
type listener struct {
	gateway.Listener
	// kinds are the supported kinds of routes.
	kinds []gateway.RouteGroupKind
	// unsupported, conflict and refs are problems, or nil.
	unsupported, conflict, refs *problem
}

// valid reports whether the listener has no problem.
func (l *listener) valid() bool { return l.accepted() && l.refs == nil }

func (l *listener) accepted() bool { return l.unsupported == nil && l.conflict == nil }

// checkListeners returns the listeners of a Gateway with their problems.
func checkListeners(v view, g *gateway.Gateway) []listener {
	all := make([]listener, len(g.Spec.Listeners))
	for i, one := range g.Spec.Listeners {
		l := listener{Listener: one}
		switch one.Protocol {
		case gateway.HTTPProtocolType, gateway.HTTPSProtocolType:
			l.kinds, l.refs = routeKinds(one)
		default:
			l.unsupported = problemf(gateway.ListenerReasonUnsupportedProtocol, "protocol %s is not supported; use HTTP or HTTPS", one.Protocol)
		}
		if one.Protocol == gateway.HTTPSProtocolType {
			if p := certificatesProblem(v, g, one); p != nil {
				l.refs = p
			}
		}
		l.conflict = conflict(g.Spec.Listeners, i)
		all[i] = l
	}
	return all
}

// routeKinds returns the supported kinds of routes of an HTTP listener and a problem with its requested
// kinds.
func routeKinds(l gateway.Listener) (supported []gateway.RouteGroupKind, p *problem) {
	group := gateway.Group(gateway.GroupName)
	ours := gateway.RouteGroupKind{Group: &group, Kind: routeKind}
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return []gateway.RouteGroupKind{ours}, nil
	}
	for _, kind := range l.AllowedRoutes.Kinds {
		if valueOr(kind.Group, group) != group || kind.Kind != routeKind {
			p = problemf(gateway.ListenerReasonInvalidRouteKinds, "routes of kind %s are not supported; use HTTPRoute", kind.Kind)
		} else if len(supported) == 0 {
			supported = []gateway.RouteGroupKind{ours}
		}
	}
	return supported, p
}

// certificatesProblem returns the first problem with the certificates of a listener, or nil.
func certificatesProblem(v view, g *gateway.Gateway, l gateway.Listener) *problem {
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "an HTTPS listener needs a certificate; set certificateRefs to a Secret")
	}
	for _, ref := range l.TLS.CertificateRefs {
		if p := certificateProblem(v, g, ref); p != nil {
			return p
		}
	}
	return nil
}

// conflict returns a problem if a listener conflicts with another one, or nil. Both listeners are rejected.
func conflict(all []gateway.Listener, i int) *problem {
	for j, other := range all {
		one := all[i]
		switch {
		case j == i || other.Port != one.Port:
		case other.Protocol != one.Protocol:
			return problemf(gateway.ListenerReasonProtocolConflict, "listener %s uses protocol %s on the same port", other.Name, other.Protocol)
		case valueOr(other.Hostname, "") == valueOr(one.Hostname, ""):
			return problemf(gateway.ListenerReasonHostnameConflict, "listener %s has the same port and hostname", other.Name)
		}
	}
	return nil
}

// allows reports whether routes of a namespace may attach to a listener.
func (l *listener) allows(g *gateway.Gateway, namespace string, namespaceLabels map[string]string) bool {
	if len(l.kinds) == 0 {
		return false
	}
	from := gateway.NamespacesFromSame
	var selector *metav1.LabelSelector
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from = valueOr(l.AllowedRoutes.Namespaces.From, from)
		selector = l.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case gateway.NamespacesFromAll:
		return true
	case gateway.NamespacesFromSame:
		return namespace == g.Namespace
	case gateway.NamespacesFromSelector:
		// A missing or invalid selector selects nothing.
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(namespaceLabels))
	}
	return false
}

// status returns the desired status of a listener, without times. waiting is the reason why the Gateway is
// not programmed yet, or nil.
func (l *listener) status(generation int64, attached int32, waiting *problem) gateway.ListenerStatus {
	is := func(kind gateway.ListenerConditionType, p *problem, good gateway.ListenerConditionReason) metav1.Condition {
		if p != nil {
			return condition(kind, false, p.reason, p.message, generation)
		}
		return condition(kind, true, good, "", generation)
	}
	conflicted := condition(gateway.ListenerConditionConflicted, false, gateway.ListenerReasonNoConflicts, "", generation)
	if l.conflict != nil {
		conflicted = condition(gateway.ListenerConditionConflicted, true, l.conflict.reason, l.conflict.message, generation)
	}
	unaccepted := l.unsupported
	if unaccepted == nil {
		unaccepted = l.conflict
	}
	unprogrammed := waiting
	if !l.valid() {
		unprogrammed = problemf(gateway.ListenerReasonInvalid, "listener is invalid; see its other conditions")
	}
	return gateway.ListenerStatus{
		Name: l.Name, SupportedKinds: append([]gateway.RouteGroupKind{}, l.kinds...), AttachedRoutes: attached,
		Conditions: []metav1.Condition{
			is(gateway.ListenerConditionAccepted, unaccepted, gateway.ListenerReasonAccepted),
			conflicted,
			is(gateway.ListenerConditionResolvedRefs, l.refs, gateway.ListenerReasonResolvedRefs),
			is(gateway.ListenerConditionProgrammed, unprogrammed, gateway.ListenerReasonProgrammed),
		},
	}
}

// names returns the names of the listeners for which a condition does not hold.
func names(all []listener, holds func(*listener) bool) string {
	var out []string
	for i := range all {
		if !holds(&all[i]) {
			out = append(out, string(all[i].Name))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}
