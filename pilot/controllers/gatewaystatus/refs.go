package gatewaystatus

import (
	"crypto/tls"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// problem is the reason and the message of a condition or an Event.
type problem = reconcile.Problem

func problemf[R ~string](reason R, format string, args ...any) *problem {
	return reconcile.Problemf(string(reason), format, args...)
}

// granted reports whether objects of a Gateway API kind in one namespace may refer to a core object in
// another namespace.
func granted(v view, fromKind, fromNamespace, toKind, toNamespace, toName string) bool {
	if fromNamespace == toNamespace {
		return true
	}
	return slices.ContainsFunc(v.grants(toNamespace), func(g *gateway.ReferenceGrant) bool {
		return slices.ContainsFunc(g.Spec.From, func(from gateway.ReferenceGrantFrom) bool {
			return string(from.Group) == gateway.GroupName && string(from.Kind) == fromKind && string(from.Namespace) == fromNamespace
		}) && slices.ContainsFunc(g.Spec.To, func(to gateway.ReferenceGrantTo) bool {
			return to.Group == "" && string(to.Kind) == toKind && (to.Name == nil || string(*to.Name) == toName)
		})
	})
}

// certificateProblem returns a problem with a reference to a certificate, or nil. Without a grant, it does
// not reveal whether the Secret exists.
func certificateProblem(v view, g *gateway.Gateway, ref gateway.SecretObjectReference) *problem {
	group := ptr.Deref(ref.Group, "")
	kind := ptr.Deref(ref.Kind, secretKind)
	namespace := string(ptr.Deref(ref.Namespace, gateway.Namespace(g.Namespace)))
	name := string(ref.Name)
	if group != "" || kind != secretKind {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "certificate %s is a %s of group %q; it must be a Secret", name, kind, group)
	}
	if !granted(v, gatewayKind, g.Namespace, secretKind, namespace, name) {
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

// problemKey is the key under which the cache stores the problem of a Secret. The key pair is dropped.
const problemKey = "problem"

// checkedSecret returns a Secret without its data and with their problem. It returns a checked Secret
// unchanged, because an informer can transform an object twice.
func checkedSecret(secret *corev1.Secret) *corev1.Secret {
	if _, done := secret.StringData[problemKey]; done { // the API server never sends this field
		return secret
	}
	checked := &corev1.Secret{ObjectMeta: meta(secret.ObjectMeta), Type: secret.Type, StringData: map[string]string{problemKey: ""}}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		checked.StringData[problemKey] = fmt.Sprintf("%s and %s are not a key pair: %v", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return checked
}

// backendProblem returns a problem with a reference to a backend, or nil.
func backendProblem(v view, r *route, ref gateway.BackendObjectReference) *problem {
	group := ptr.Deref(ref.Group, "")
	kind := ptr.Deref(ref.Kind, serviceKind)
	namespace := string(ptr.Deref(ref.Namespace, gateway.Namespace(r.Namespace)))
	name := string(ref.Name)
	if group != "" || kind != serviceKind {
		return problemf(gateway.RouteReasonInvalidKind, "backend %s is a %s of group %q; it must be a Service", name, kind, group)
	}
	if !granted(v, r.Kind, r.Namespace, serviceKind, namespace, name) {
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
