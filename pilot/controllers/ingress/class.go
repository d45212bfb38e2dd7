package ingress

import networkingv1 "k8s.io/api/networking/v1"

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
