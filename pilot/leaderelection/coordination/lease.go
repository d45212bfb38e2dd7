package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// A coordinator writes strategy and preferred holder into the spec of a Lease. It also writes them as annotations
// (annotate) if the API server drops these fields.

func strategyOf(l *coordinationv1.Lease) string {
	strategy, _ := k8sresourcelock.Coordination(l)
	return strategy
}

func preferredHolder(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	_, preferred := k8sresourcelock.Coordination(l)
	return preferred
}

func clearPreferredHolder(l *coordinationv1.Lease) {
	l.Spec.PreferredHolder = nil
	delete(l.Annotations, record.PreferredHolderAnnotation)
}

func setPreferredHolder(l *coordinationv1.Lease, preferred string, annotate bool) {
	clearPreferredHolder(l)
	// The API server rejects a preferred holder without a strategy in the spec. The strategy may be an old annotation.
	setStrategy(l, strategyOf(l), annotate)
	l.Spec.PreferredHolder = &preferred
	if annotate {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.PreferredHolderAnnotation, preferred)
	}
}

func setStrategy(l *coordinationv1.Lease, strategy string, annotate bool) {
	l.Spec.Strategy = (*coordinationv1.CoordinatedLeaseStrategy)(&strategy)
	delete(l.Annotations, record.StrategyAnnotation)
	if annotate {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, record.StrategyAnnotation, strategy)
	}
}

// fieldsDropped reports whether the API server dropped strategy or preferred holder. known is false if neither was sent.
func fieldsDropped(sent, stored *coordinationv1.Lease) (dropped, known bool) {
	switch {
	case sent.Spec.PreferredHolder != nil:
		return stored.Spec.PreferredHolder == nil, true
	case sent.Spec.Strategy != nil:
		return stored.Spec.Strategy == nil, true
	}
	return false, false
}

// isNominated reports whether another process wrote the holder, and the holder has not written the lock yet.
func isNominated(l *coordinationv1.Lease) bool {
	snap, _ := k8sresourcelock.LeaseSnapshot(l).Decode() // the version does not matter
	return snap.Nominated()
}
