package coordination

import (
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
)

// A coordinator writes strategy and preferred holder into the spec of a Lease. It also writes them as annotations
// (annotate) if the API server drops these fields.

func strategyOf(l *coordinationv1.Lease) string {
	if s := string(value(l.Spec.Strategy)); s != "" {
		return s
	}
	return l.Annotations[record.StrategyAnnotation]
}

func preferredHolder(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	if preferred := value(l.Spec.PreferredHolder); preferred != "" {
		return preferred
	}
	return l.Annotations[record.PreferredHolderAnnotation]
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

// isNominated reports whether another process wrote the holder, and the holder has not written the lock yet. A coordinator leaves
// acquireTime empty. A leader that hands over sets the annotation. A marker of the record proves that the holder has written.
func isNominated(l *coordinationv1.Lease) bool {
	holder := value(l.Spec.HolderIdentity)
	marker := fmt.Sprintf("v1 %s %d ", holder, value(l.Spec.LeaseTransitions))
	return l.Spec.AcquireTime == nil ||
		l.Annotations[record.NominatedAnnotation] == holder && l.Spec.AcquireTime.Equal(l.Spec.RenewTime) &&
			!strings.HasPrefix(l.Annotations[record.MarkerAnnotation]+" ", marker)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
