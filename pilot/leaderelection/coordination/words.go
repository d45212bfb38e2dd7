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

func preferNobody(l *coordinationv1.Lease) {
	l.Spec.PreferredHolder = nil
	delete(l.Annotations, k8sresourcelock.PreferredHolderAnnotation)
}

// prefer writes whom the Lease prefers. An API server without the feature drops that from the spec, also of a
// Lease whose spec has its strategy from before: there it stands in an annotation, too.
func prefer(l *coordinationv1.Lease, who string, annotate bool) {
	preferNobody(l)
	// One with the feature refuses a preferred holder without a strategy, which may stand in an annotation from before.
	ask(l, strategyOf(l), annotate)
	l.Spec.PreferredHolder = &who
	if annotate {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, k8sresourcelock.PreferredHolderAnnotation, who)
	}
}

// ask writes the strategy.
func ask(l *coordinationv1.Lease, strategy string, annotate bool) {
	l.Spec.Strategy = (*coordinationv1.CoordinatedLeaseStrategy)(&strategy)
	delete(l.Annotations, k8sresourcelock.StrategyAnnotation)
	if annotate {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, k8sresourcelock.StrategyAnnotation, strategy)
	}
}

// dropped reports whether the API server has not stored what of the spec is the feature's; told is false where nothing
// of that was sent.
func dropped(sent, stored *coordinationv1.Lease) (dropped, told bool) {
	switch {
	case sent.Spec.PreferredHolder != nil:
		return stored.Spec.PreferredHolder == nil, true
	case sent.Spec.Strategy != nil:
		return stored.Spec.Strategy == nil, true
	}
	return false, false
}
