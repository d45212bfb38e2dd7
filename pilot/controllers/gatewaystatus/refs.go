package gatewaystatus

import (
	"crypto/tls"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// A problem with a reference: a reason for the condition ResolvedRefs, and what is wrong.
type problem struct{ reason, message string }

func problemf[R ~string](reason R, format string, args ...any) *problem {
	return &problem{string(reason), fmt.Sprintf(format, args...)}
}

// granted reports whether a ReferenceGrant lets objects of a kind of this API, in a namespace,
// refer to an object of the core API in another one.
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

// certificateProblem says what is wrong with a listener's reference to a certificate, nil for nothing.
// Whether a Secret exists is not said to those who may not refer to it.
func certificateProblem(v view, g *gateway.Gateway, ref gateway.SecretObjectReference) *problem {
	group, kind := valueOr(ref.Group, ""), valueOr(ref.Kind, secretKind)
	namespace, name := string(valueOr(ref.Namespace, gateway.Namespace(g.Namespace))), string(ref.Name)
	if group != "" || kind != secretKind {
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "certificate %s is a %s of the group %q: it has to be a Secret", name, kind, group)
	}
	if !granted(v, gatewayKind, g.Namespace, secretKind, namespace, name) {
		return problemf(gateway.ListenerReasonRefNotPermitted, "no ReferenceGrant in namespace %s lets Gateways of %s refer to Secret %s", namespace, g.Namespace, name)
	}
	secret := v.secret(namespace, name)
	switch {
	case secret == nil:
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "there is no Secret %s/%s of type %s", namespace, name, corev1.SecretTypeTLS)
	case secret.StringData[verdictKey] != "":
		return problemf(gateway.ListenerReasonInvalidCertificateRef, "Secret %s/%s: %s", namespace, name, secret.StringData[verdictKey])
	}
	return nil
}

// verdictKey is where the cache keeps what is wrong with a Secret: its key pair is dropped.
const verdictKey = "problem"

// judgedSecret is a Secret without its data, but with a verdict on them. One that was judged already
// is returned as it is: an informer may transform what it has once more.
func judgedSecret(secret *corev1.Secret) *corev1.Secret {
	if _, done := secret.StringData[verdictKey]; done { // an API server sends no such field
		return secret
	}
	judged := &corev1.Secret{ObjectMeta: meta(secret.ObjectMeta), Type: secret.Type, StringData: map[string]string{verdictKey: ""}}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		judged.StringData[verdictKey] = fmt.Sprintf("%s and %s are no key pair: %v", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return judged
}

// backendProblem says what is wrong with a route's reference to a backend, nil for nothing.
func backendProblem(v view, route *gateway.HTTPRoute, ref gateway.BackendObjectReference) *problem {
	group, kind := valueOr(ref.Group, ""), valueOr(ref.Kind, serviceKind)
	namespace, name := string(valueOr(ref.Namespace, gateway.Namespace(route.Namespace))), string(ref.Name)
	if group != "" || kind != serviceKind {
		return problemf(gateway.RouteReasonInvalidKind, "backend %s is a %s of the group %q: it has to be a Service", name, kind, group)
	}
	if !granted(v, routeKind, route.Namespace, serviceKind, namespace, name) {
		return problemf(gateway.RouteReasonRefNotPermitted, "no ReferenceGrant in namespace %s lets HTTPRoutes of %s refer to Service %s", namespace, route.Namespace, name)
	}
	service := v.service(namespace, name)
	if service == nil {
		return problemf(gateway.RouteReasonBackendNotFound, "there is no Service %s/%s", namespace, name)
	}
	port := int32(valueOr(ref.Port, 0))
	if service.Spec.Type != corev1.ServiceTypeExternalName && !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port }) {
		return problemf(gateway.RouteReasonBackendNotFound, "Service %s/%s has no port %d", namespace, name, port)
	}
	return nil
}

// backends are all references of a route to backends, in their order.
func backends(route *gateway.HTTPRoute) []gateway.BackendObjectReference {
	var all []gateway.BackendObjectReference
	mirrors := func(filters []gateway.HTTPRouteFilter) {
		for _, filter := range filters {
			if filter.RequestMirror != nil {
				all = append(all, filter.RequestMirror.BackendRef)
			}
		}
	}
	for _, rule := range route.Spec.Rules {
		mirrors(rule.Filters)
		for _, ref := range rule.BackendRefs {
			all = append(all, ref.BackendObjectReference)
			mirrors(ref.Filters)
		}
	}
	return all
}
