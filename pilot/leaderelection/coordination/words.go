package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// strategyOf and preferred are what a coordinator has written on a Lease, in its spec or, where the API server has no such
// fields, in annotations.
func strategyOf(l *coordinationv1.Lease) string {
	if s := string(value(l.Spec.Strategy)); s != "" {
		return s
	}
	return l.Annotations[k8sresourcelock.StrategyAnnotation]
}

func preferred(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	if who := value(l.Spec.PreferredHolder); who != "" {
		return who
	}
	return l.Annotations[k8sresourcelock.PreferredHolderAnnotation]
}

// prefer writes whom the Lease prefers, "" for nobody. An API server without the feature drops that from the spec, also of a
// Lease whose spec has its strategy from before; what stands in the other place goes.
func prefer(l *coordinationv1.Lease, who string, annotate bool) {
	l.Spec.PreferredHolder = nil
	delete(l.Annotations, k8sresourcelock.PreferredHolderAnnotation)
	switch {
	case who == "":
	case !annotate:
		l.Spec.PreferredHolder = &who
	default:
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, k8sresourcelock.PreferredHolderAnnotation, who)
	}
}
