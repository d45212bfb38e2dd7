package gatewaystatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// problem is the reason and the message of a condition or an Event.
type problem = reconcile.Problem

func problemf[R ~string](reason R, format string, args ...any) *problem {
	return reconcile.Problemf(string(reason), format, args...)
}

// grants answers whether the objects of one kind in one namespace may refer to core objects in other namespaces. It reads the
// ReferenceGrants of a namespace once, because an object can have thousands of references and a namespace thousands of grants.
type grants struct {
	v               view
	kind, namespace string
	to              map[string]sets.Set[target] // by namespace
}

// target is a core object to which a grant allows references. An empty name means all objects of the kind.
type target struct{ kind, name string }

func grantsFor(v view, kind, namespace string) *grants {
	return &grants{v: v, kind: kind, namespace: namespace, to: map[string]sets.Set[target]{}}
}

// allow reports whether the objects may refer to an object.
func (g *grants) allow(kind, namespace, name string) bool {
	if namespace == g.namespace {
		return true
	}
	to, known := g.to[namespace]
	if !known {
		to = g.targets(namespace)
		g.to[namespace] = to
	}
	return to.HasAny(target{kind, ""}, target{kind, name})
}

// targets returns the objects of a namespace to which its grants allow references.
func (g *grants) targets(namespace string) sets.Set[target] {
	all := sets.Set[target]{}
	for _, grant := range g.v.grants(namespace) {
		if !slices.ContainsFunc(grant.Spec.From, func(from gateway.ReferenceGrantFrom) bool {
			return string(from.Group) == gateway.GroupName && string(from.Kind) == g.kind && string(from.Namespace) == g.namespace
		}) {
			continue
		}
		for _, to := range grant.Spec.To {
			if to.Group == "" {
				all.Insert(target{string(to.Kind), string(ptr.Deref(to.Name, ""))})
			}
		}
	}
	return all
}

// certificateProblem returns a problem with a reference to a certificate, or nil. Without a grant, it does
// not reveal whether the Secret exists.
func certificateProblem(v view, g *gateway.Gateway, granted *grants, ref gateway.SecretObjectReference) *problem {
	group := ptr.Deref(ref.Group, "")
	kind := ptr.Deref(ref.Kind, secretKind)
	namespace := string(ptr.Deref(ref.Namespace, gateway.Namespace(g.Namespace)))
	name := string(ref.Name)
	if group != "" || kind != secretKind {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "certificate %s is a %s of group %q; it must be a Secret", name, kind, group)
	}
	if !granted.allow(secretKind, namespace, name) {
		return problemf(gateway.ListenerReasonRefNotPermitted, "no ReferenceGrant in namespace %s allows Gateways of namespace %s to refer to Secret %s", namespace, g.Namespace, name)
	}
	secret := v.secret(namespace, name)
	switch {
	case secret == nil:
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "Secret %s/%s of type %s does not exist", namespace, name, corev1.SecretTypeTLS)
	case secret.StringData[problemKey] != "":
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "Secret %s/%s: %s", namespace, name, secret.StringData[problemKey])
	}
	return nil
}

// backendProblem returns a problem with a reference to a backend, or nil.
func backendProblem(v view, r *route, granted *grants, ref gateway.BackendObjectReference) *problem {
	group := ptr.Deref(ref.Group, "")
	kind := ptr.Deref(ref.Kind, serviceKind)
	namespace := string(ptr.Deref(ref.Namespace, gateway.Namespace(r.Namespace)))
	name := string(ref.Name)
	if group != "" || kind != serviceKind {
		return problemf(gateway.RouteReasonInvalidKind, "backend %s is a %s of group %q; it must be a Service", name, kind, group)
	}
	if !granted.allow(serviceKind, namespace, name) {
		return problemf(gateway.RouteReasonRefNotPermitted, "no ReferenceGrant in namespace %s allows a %s of namespace %s to refer to Service %s", namespace, r.Kind, r.Namespace, name)
	}
	service := v.service(namespace, name)
	if service == nil {
		return problemf(gateway.RouteReasonBackendNotFound, "Service %s/%s does not exist", namespace, name)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return problemf(gateway.RouteReasonInvalidKind, "Service %s/%s has type ExternalName, which is not supported", namespace, name)
	}
	port := int32(ptr.Deref(ref.Port, 0))
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }) {
		return problemf(gateway.RouteReasonBackendNotFound, "Service %s/%s has no port %d", namespace, name, port)
	}
	return nil
}

// filters returns the filters of the rules of a route and of their backends.
func filters(r *route) (all []routeFilter) {
	for _, rule := range r.Spec.Rules {
		all = append(all, rule.Filters...)
		for _, ref := range rule.BackendRefs {
			all = append(all, ref.Filters...)
		}
	}
	return all
}

// backends returns all backend references of a route.
func backends(r *route) (all []gateway.BackendObjectReference) {
	for _, rule := range r.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			all = append(all, ref.BackendObjectReference)
		}
	}
	for _, filter := range filters(r) {
		if filter.RequestMirror != nil {
			all = append(all, filter.RequestMirror.BackendRef)
		}
	}
	return all
}
