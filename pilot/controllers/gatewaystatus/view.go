package gatewaystatus

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	gatewayKind = "Gateway"
	serviceKind = "Service"
	secretKind  = "Secret"
)

// view provides the objects of the cluster. It returns nil for missing objects.
type view interface {
	class(name string) *gateway.GatewayClass
	gateway(namespace, name string) *gateway.Gateway
	service(namespace, name string) *corev1.Service
	secret(namespace, name string) *corev1.Secret
	namespace(name string) *corev1.Namespace
	// selectors returns selectorsOf a Gateway.
	selectors(*gateway.Gateway) []labels.Selector
	// grants returns the ReferenceGrants in a namespace.
	grants(namespace string) []*gateway.ReferenceGrant
	// serves reports whether the API server serves a kind of routes.
	serves(routeKind string) bool
	// routes returns the routes of all kinds whose parent is a Gateway.
	routes(gatewayNamespace, gatewayName string) []*route
	// deployments returns the Deployments that are labelled with the name of a Gateway.
	deployments(gatewayNamespace, gatewayName string) []*appsv1.Deployment
	// services returns the Services that are labelled with the name of a Gateway.
	services(gatewayNamespace, gatewayName string) []*corev1.Service
	// pods returns the Pods with the label of a Gateway.
	pods(*gateway.Gateway) []*corev1.Pod
	// autoscalers and budgets return the objects that are labelled with the name of a Gateway.
	autoscalers(gatewayNamespace, gatewayName string) []*autoscalingv2.HorizontalPodAutoscaler
	budgets(gatewayNamespace, gatewayName string) []*policyv1.PodDisruptionBudget
	// warnings returns the Events of type Warning about a Service, or the Events FailedMount about a Pod.
	warnings(types.UID) []*corev1.Event
	// isMine reports whether an object belongs to the revision.
	isMine(metav1.ObjectMeta) bool
	// claimed reports whether a revision or a tag with this name exists.
	claimed(revision string) bool
}

// mine reports whether a namespaced object belongs to the revision. It returns false until the namespace is
// cached.
func mine(v view, object metav1.ObjectMeta) bool {
	namespace := v.namespace(object.Namespace)
	return namespace != nil && v.isMine(reconcile.Inherited(object, namespace.Labels))
}

// ours reports whether a Gateway belongs to a class of this controller and to the revision. The class istio
// belongs to this controller even if it is missing, as in gatewaydeploy and istiod.
func ours(v view, g *gateway.Gateway) bool {
	return g != nil && gatewaydeploy.Serves(g, v.class(string(g.Spec.GatewayClassName))) && mine(v, g.ObjectMeta)
}

// unknownClass returns a problem if a Gateway of the revision has a missing class, or nil. The class istio
// never counts as missing.
func unknownClass(v view, g *gateway.Gateway) *problem {
	class := string(g.Spec.GatewayClassName)
	if class == reconcile.GatewayClass || v.class(class) != nil || !mine(v, g.ObjectMeta) {
		return nil
	}
	return problemf(reasonUnknownClass, "GatewayClass %s does not exist; create it or set another class", class)
}

// unknownRevision returns a problem if the revision label of a Gateway names no revision and no tag, or nil. The
// default revision reports it.
func unknownRevision(v view, g *gateway.Gateway) *problem {
	namespace := v.namespace(g.Namespace)
	class := v.class(string(g.Spec.GatewayClassName))
	if namespace == nil || class == nil || class.Spec.ControllerName != reconcile.GatewayController || !v.isMine(metav1.ObjectMeta{}) {
		return nil
	}
	revision := reconcile.Inherited(g.ObjectMeta, namespace.Labels).Labels[tagging.Label]
	if revision == "" || v.claimed(revision) {
		return nil
	}
	return problemf(reasonUnknownRevision, "no revision or tag %s exists, so no controller serves the Gateway; correct the label %s or install the revision", revision, tagging.Label)
}

// meta returns the metadata that is kept of all objects.
func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := reconcile.Meta(m)
	kept.Labels = m.Labels
	kept.Generation = m.Generation
	return kept
}
