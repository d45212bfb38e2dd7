package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// ours reports whether an Ingress belongs to the class. named is the IngressClass of its spec. It is
// nil if the spec names no class or a missing class, which Istio treats in the same way.
func ours(mode Mode, class string, ingress *networkingv1.Ingress, named *networkingv1.IngressClass) bool {
	annotation, annotated := ingress.Annotations[classAnnotation]
	switch {
	case mode == Off:
		return false
	case annotated: // even an empty annotation overrides the spec
		return annotation == class
	case named != nil:
		return named.Spec.Controller == ControllerName
	}
	return mode == Default
}

// unknownClass returns a problem if an Ingress gets no status because its IngressClass does not
// exist, or nil. In mode Default such an Ingress is ours.
func unknownClass(mode Mode, ingress *networkingv1.Ingress, named *networkingv1.IngressClass) *reconcile.Problem {
	_, annotated := ingress.Annotations[classAnnotation]
	if mode != Strict || annotated || named != nil || ingress.Spec.IngressClassName == nil {
		return nil
	}
	return reconcile.Problemf(reasonUnknownClass, "IngressClass %s does not exist; create it or set another class", *ingress.Spec.IngressClassName)
}
