package gatewaystatus

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// listener is a Gateway's listener with what was found out about it.
type listener struct {
	gateway.Listener
	// kinds are those routes that it takes.
	kinds []gateway.RouteGroupKind
	// refused, conflict and refs are what is wrong with it, nil for nothing.
	refused, conflict, refs *problem
}

// valid reports whether nothing is wrong.
func (l *listener) valid() bool { return l.accepted() && l.refs == nil }

func (l *listener) accepted() bool { return l.refused == nil && l.conflict == nil }

// judged are the listeners of a Gateway, in their order.
func judged(v view, g *gateway.Gateway) []listener {
	all := make([]listener, len(g.Spec.Listeners))
	for i, one := range g.Spec.Listeners {
		l := listener{Listener: one}
		switch one.Protocol {
		case gateway.HTTPProtocolType, gateway.HTTPSProtocolType:
			l.kinds, l.refs = routeKinds(one)
		default:
			l.refused = problemf(gateway.ListenerReasonUnsupportedProtocol, "protocol %s is not supported: use HTTP or HTTPS", one.Protocol)
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

// routeKinds are the kinds of routes that a listener of HTTP takes, and what is wrong with those it asks for.
func routeKinds(l gateway.Listener) (supported []gateway.RouteGroupKind, wrong *problem) {
	group := gateway.Group(gateway.GroupName)
	ours := gateway.RouteGroupKind{Group: &group, Kind: routeKind}
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return []gateway.RouteGroupKind{ours}, nil
	}
	for _, kind := range l.AllowedRoutes.Kinds {
		if valueOr(kind.Group, group) != group || kind.Kind != routeKind {
			wrong = problemf(gateway.ListenerReasonInvalidRouteKinds, "routes of kind %s are not supported: use HTTPRoute", kind.Kind)
		} else if len(supported) == 0 {
			supported = []gateway.RouteGroupKind{ours}
		}
	}
	return supported, wrong
}

// certificatesProblem says what is wrong with a listener's certificates, nil for nothing.
func certificatesProblem(v view, g *gateway.Gateway, l gateway.Listener) *problem {
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "a listener of HTTPS needs a certificate: name a Secret in certificateRefs")
	}
	for _, ref := range l.TLS.CertificateRefs {
		if p := certificateProblem(v, g, ref); p != nil {
			return p
		}
	}
	return nil
}

// conflict says with which other listener one cannot be served, nil for none. None of them wins.
func conflict(all []gateway.Listener, i int) *problem {
	for j, other := range all {
		one := all[i]
		switch {
		case j == i || other.Port != one.Port:
		case other.Protocol != one.Protocol:
			return problemf(gateway.ListenerReasonProtocolConflict, "listener %s speaks %s at the same port", other.Name, other.Protocol)
		case valueOr(other.Hostname, "") == valueOr(one.Hostname, ""):
			return problemf(gateway.ListenerReasonHostnameConflict, "listener %s has the same port and hostname", other.Name)
		}
	}
	return nil
}

// takes reports whether routes of a namespace may attach to a listener.
func (l *listener) takes(g *gateway.Gateway, namespace string, namespaceLabels map[string]string) bool {
	if len(l.kinds) == 0 {
		return false
	}
	from, selector := gateway.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from, selector = valueOr(l.AllowedRoutes.Namespaces.From, from), l.AllowedRoutes.Namespaces.Selector
	}
	switch from {
	case gateway.NamespacesFromAll:
		return true
	case gateway.NamespacesFromSame:
		return namespace == g.Namespace
	case gateway.NamespacesFromSelector:
		// One that is not there selects nothing, and neither does one that is not valid.
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(namespaceLabels))
	}
	return false
}

// status is what a listener's status should be, without times. waiting is why the Gateway is not
// programmed yet, nil when it is.
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
	unaccepted := l.refused
	if unaccepted == nil {
		unaccepted = l.conflict
	}
	unprogrammed := waiting
	if !l.valid() {
		unprogrammed = problemf(gateway.ListenerReasonInvalid, "the listener is not valid, see its other conditions")
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

// names lists the listeners that a condition does not hold for.
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
