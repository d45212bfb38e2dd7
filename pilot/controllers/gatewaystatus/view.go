package gatewaystatus

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

// ControllerName is the name of the controller in GatewayClasses and in the status of routes.
const ControllerName gateway.GatewayController = "istio.io/gateway-controller"

const (
	gatewayKind = "Gateway"
	routeKind   = "HTTPRoute"
	serviceKind = "Service"
	secretKind  = "Secret"
)

// view is what is known of the cluster. What does not exist is nil.
type view interface {
	class(name string) *gateway.GatewayClass
	gateway(namespace, name string) *gateway.Gateway
	service(namespace, name string) *corev1.Service
	secret(namespace, name string) *corev1.Secret
	namespace(name string) *corev1.Namespace
	// grants are the ReferenceGrants in a namespace.
	grants(namespace string) []*gateway.ReferenceGrant
	// routes are those that name a Gateway as a parent.
	routes(gatewayNamespace, gatewayName string) []*gateway.HTTPRoute
	// deployments and services are those labelled with a Gateway's name, in its namespace.
	deployments(gatewayNamespace, gatewayName string) []*appsv1.Deployment
	services(gatewayNamespace, gatewayName string) []*corev1.Service
	// isMine says whether the revision has an object.
	isMine(metav1.ObjectMeta) bool
}

// mine reports whether the revision has an object that lies in a namespace. One whose namespace
// is not known is nobody's yet.
func mine(v view, object metav1.ObjectMeta) bool {
	namespace := v.namespace(object.Namespace)
	return namespace != nil && v.isMine(revisions.Inherited(object, namespace.Labels))
}

// ours reports whether a Gateway is of a class of this controller, and the revision's. The class istio is this controller's
// also where it is missing: to what deploys Gateways it is, and to istiod.
func ours(v view, g *gateway.Gateway) bool {
	if g == nil {
		return false
	}
	class := v.class(string(g.Spec.GatewayClassName))
	if class == nil {
		return g.Spec.GatewayClassName == ClassName && mine(v, g.ObjectMeta)
	}
	return class.Spec.ControllerName == ControllerName && mine(v, g.ObjectMeta)
}

// unknownClass says that a Gateway of the revision is nobody's because there is no class of the name,
// nil where that is not so. The class istio is known, also before it is made.
func unknownClass(v view, g *gateway.Gateway) *reconcile.Problem {
	class := string(g.Spec.GatewayClassName)
	if class == ClassName || v.class(class) != nil || !mine(v, g.ObjectMeta) {
		return nil
	}
	return reconcile.Problemf(ReasonUnknownClass, "there is no GatewayClass %s: the Gateway is nobody's before it is there", class)
}

// valueOr is what a pointer points to, and the default for nil.
func valueOr[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// meta is what is kept of the metadata of all objects.
func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := reconcile.Meta(m)
	kept.Labels, kept.Generation = m.Labels, m.Generation
	return kept
}
