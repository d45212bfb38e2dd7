package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// ours reports whether an Ingress is of the class. named is the IngressClass that its spec names,
// nil where it names none or one that does not exist: to Istio the two are the same.
func ours(mode Mode, class string, ingress *networkingv1.Ingress, named *networkingv1.IngressClass) bool {
	annotated, isAnnotated := ingress.Annotations[classAnnotation]
	switch {
	case mode == Off:
		return false
	case isAnnotated: // even an empty one outweighs the spec
		return annotated == class
	case named != nil:
		return named.Spec.Controller == ControllerName
	}
	return mode == Default
}

// unknownClass says that an Ingress is nobody's because its spec names an IngressClass that does not exist,
// nil where that is not so. Without one of Mode Default it is ours.
func unknownClass(mode Mode, ingress *networkingv1.Ingress, named *networkingv1.IngressClass) *reconcile.Problem {
	_, isAnnotated := ingress.Annotations[classAnnotation]
	if mode != Strict || isAnnotated || named != nil || ingress.Spec.IngressClassName == nil {
		return nil
	}
	return reconcile.Problemf(ReasonUnknownClass, "there is no IngressClass %s: no status is written before it is there", *ingress.Spec.IngressClassName)
}
