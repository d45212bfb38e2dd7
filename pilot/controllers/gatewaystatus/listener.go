package gatewaystatus

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// listener is a listener of a Gateway with its problems.
type listener struct {
	gateway.Listener
	// kinds are the supported kinds of routes.
	kinds []string
	// selector selects the namespaces of routes if the listener has a selector.
	selector labels.Selector
	// unsupported, conflict, certificates and unknown are problems, or nil. unknown is a problem with the requested
	// kinds of routes.
	unsupported, conflict, certificates, unknown *problem
}

// valid reports whether the listener can serve routes. A listener with an unknown kind of routes serves its
// other kinds.
func (l *listener) valid() bool {
	return l.accepted() && l.certificates == nil && len(l.kinds) > 0
}

func (l *listener) accepted() bool { return l.unsupported == nil && l.conflict == nil }

// listenersOf returns the listeners of a Gateway, with the problems of their kinds of routes only. Routes depend on nothing else.
func listenersOf(v view, g *gateway.Gateway) []listener {
	all := make([]listener, len(g.Spec.Listeners))
	selectors := v.selectors(g)
	for i, one := range g.Spec.Listeners {
		l := listener{Listener: one, selector: selectors[i]}
		known := slices.DeleteFunc(slices.Clone(kindsOf(one)), func(kind string) bool { return !v.serves(kind) })
		if len(known) == 0 {
			l.unsupported = problemf(gateway.ListenerReasonUnsupportedProtocol, "protocol %s is not supported; use %s", one.Protocol, protocols(v))
		} else {
			l.kinds, l.unknown = requestedKinds(one, known)
		}
		all[i] = l
	}
	return all
}

// checkListeners returns the listeners of a Gateway with their problems.
func checkListeners(v view, g *gateway.Gateway) []listener {
	all := listenersOf(v, g)
	granted := grantsFor(v, gatewayKind, g.Namespace)
	for i := range all {
		if terminates(all[i].Listener) {
			all[i].certificates = certificatesProblem(v, g, granted, all[i].Listener)
		}
		all[i].conflict = conflict(all, i)
	}
	return all
}

// selectorsOf returns the selector of namespaces of each listener. A missing or invalid selector selects nothing.
func selectorsOf(g *gateway.Gateway) []labels.Selector {
	all := make([]labels.Selector, len(g.Spec.Listeners))
	for i, l := range g.Spec.Listeners {
		all[i] = labels.Nothing()
		if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
			if selector, err := metav1.LabelSelectorAsSelector(l.AllowedRoutes.Namespaces.Selector); err == nil {
				all[i] = selector
			}
		}
	}
	return all
}

// protocols returns the names of the protocols for which a kind of routes is served.
func protocols(v view) string {
	var all []string
	for protocol, kinds := range protocolKinds {
		if slices.ContainsFunc(kinds, v.serves) {
			all = append(all, string(protocol))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// terminates reports whether a listener needs a certificate.
func terminates(l gateway.Listener) bool {
	mode := gateway.TLSModeTerminate
	if l.TLS != nil {
		mode = ptr.Deref(l.TLS.Mode, mode)
	}
	return l.Protocol == gateway.HTTPSProtocolType || l.Protocol == gateway.TLSProtocolType && mode == gateway.TLSModeTerminate
}

// requestedKinds returns the requested kinds of routes that are known for a listener, and a problem with the
// others.
func requestedKinds(l gateway.Listener, known []string) (supported []string, p *problem) {
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return known, nil
	}
	for _, kind := range l.AllowedRoutes.Kinds {
		name := string(kind.Kind)
		if ptr.Deref(kind.Group, gateway.GroupName) != gateway.GroupName || !slices.Contains(known, name) {
			p = problemf(gateway.ListenerReasonInvalidRouteKinds, "routes of kind %s are not supported for protocol %s; use %s", name, l.Protocol, strings.Join(known, ", "))
		} else if !slices.Contains(supported, name) {
			supported = append(supported, name)
		}
	}
	return supported, p
}

// certificatesProblem returns the first problem with the certificates of a listener, or nil.
func certificatesProblem(v view, g *gateway.Gateway, granted *grants, l gateway.Listener) *problem {
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "an %s listener needs a certificate; set certificateRefs to a Secret", l.Protocol)
	}
	for _, ref := range l.TLS.CertificateRefs {
		if p := certificateProblem(v, g, granted, ref); p != nil {
			return p
		}
	}
	return nil
}

// conflict returns a problem if a listener conflicts with another one on its port, or nil. Listeners that serve
// no routes conflict with no other listener.
func conflict(all []listener, i int) *problem {
	one := &all[i]
	for j := range all {
		other := &all[j]
		if j == i || other.Port != one.Port || len(one.kinds) == 0 || len(other.kinds) == 0 {
			continue
		}
		sameHost := ptr.Deref(other.Hostname, "") == ptr.Deref(one.Hostname, "")
		switch {
		case other.Protocol == one.Protocol && sameHost:
			return problemf(gateway.ListenerReasonHostnameConflict, "listener %s has the same port and hostname", other.Name)
		case !compatible(one.Protocol, other.Protocol, sameHost):
			return problemf(gateway.ListenerReasonProtocolConflict, "listener %s uses protocol %s on the same port", other.Name, other.Protocol)
		}
	}
	return nil
}

// compatible reports whether a listener can share its port with a listener of another protocol. HTTPS and TLS are
// distinct by the hostname that the client sends. HTTP, HTTPS and TLS stay accepted next to TCP, so that a new TCP
// listener does not stop them. Only the TCP listener is rejected.
func compatible(one, other gateway.ProtocolType, sameHost bool) bool {
	encrypted := func(p gateway.ProtocolType) bool {
		return p == gateway.HTTPSProtocolType || p == gateway.TLSProtocolType
	}
	switch {
	case one == other:
		return true
	case one == gateway.UDPProtocolType, other == gateway.UDPProtocolType, other == gateway.TCPProtocolType:
		return true
	}
	return encrypted(one) && encrypted(other) && !sameHost
}

// allows reports whether a route may attach to a listener.
func (l *listener) allows(g *gateway.Gateway, r *route, namespaceLabels map[string]string) bool {
	if !slices.Contains(l.kinds, r.Kind) {
		return false
	}
	from := gateway.NamespacesFromSame
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		from = ptr.Deref(l.AllowedRoutes.Namespaces.From, from)
	}
	switch from {
	case gateway.NamespacesFromAll:
		return true
	case gateway.NamespacesFromSame:
		return r.Namespace == g.Namespace
	case gateway.NamespacesFromSelector:
		return l.selector.Matches(labels.Set(namespaceLabels))
	}
	return false
}

// status returns the desired status of a listener, without times. waiting is the reason why the Gateway is
// not programmed yet, or nil.
func (l *listener) status(generation int64, attached int32, waiting *problem) gateway.ListenerStatus {
	conflicted := condition(gateway.ListenerConditionConflicted, false, gateway.ListenerReasonNoConflicts, "", generation)
	if l.conflict != nil {
		conflicted = condition(gateway.ListenerConditionConflicted, true, l.conflict.Reason, l.conflict.Message, generation)
	}
	unprogrammed := waiting
	if !l.valid() {
		unprogrammed = problemf(gateway.ListenerReasonInvalid, "listener is invalid; see its other conditions")
	}
	kinds := []gateway.RouteGroupKind{}
	for _, kind := range l.kinds {
		kinds = append(kinds, gateway.RouteGroupKind{Group: new(gateway.Group(gateway.GroupName)), Kind: gateway.Kind(kind)})
	}
	return gateway.ListenerStatus{
		Name: l.Name, SupportedKinds: kinds, AttachedRoutes: attached,
		Conditions: []metav1.Condition{
			holds(gateway.ListenerConditionAccepted, cmp.Or(l.unsupported, l.conflict), gateway.ListenerReasonAccepted, generation),
			conflicted,
			holds(gateway.ListenerConditionResolvedRefs, cmp.Or(l.certificates, l.unknown), gateway.ListenerReasonResolvedRefs, generation),
			holds(gateway.ListenerConditionProgrammed, unprogrammed, gateway.ListenerReasonProgrammed, generation),
		},
	}
}

// without returns the sorted names of the listeners that do not have a property.
func without(all []listener, property func(*listener) bool) (names []string) {
	for i := range all {
		if !property(&all[i]) {
			names = append(names, string(all[i].Name))
		}
	}
	slices.Sort(names)
	return names
}
