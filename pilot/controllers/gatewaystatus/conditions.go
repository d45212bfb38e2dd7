package gatewaystatus

import (
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition returns a condition without time.
func condition[T, R ~string](kind T, status bool, reason R, message string, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), Message: message, ObservedGeneration: generation,
	}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// holds returns a condition that is true or, with a problem, false. It has no time.
func holds[T, R ~string](kind T, p *problem, good R, generation int64) metav1.Condition {
	if p != nil {
		return condition(kind, false, p.Reason, p.Message, generation)
	}
	return condition(kind, true, good, "", generation)
}

// timed returns the existing conditions, updated to the wanted ones. The time of a condition changes only
// with its status. Conditions of other types stay. As the Gateway API requires, a condition that was
// written for a later generation stays too.
func timed(before, wanted []metav1.Condition, now metav1.Time) []metav1.Condition {
	all := slices.Clone(before)
	for _, c := range wanted {
		if b := apimeta.FindStatusCondition(all, c.Type); b == nil || b.ObservedGeneration <= c.ObservedGeneration {
			c.LastTransitionTime = now
			apimeta.SetStatusCondition(&all, c)
		}
	}
	return all
}

// only is like timed, but removes conditions of other types. It is for lists that only this controller
// writes.
func only(before, wanted []metav1.Condition, now metav1.Time) []metav1.Condition {
	before = slices.DeleteFunc(slices.Clone(before), func(b metav1.Condition) bool {
		return apimeta.FindStatusCondition(wanted, b.Type) == nil
	})
	return timed(before, wanted, now)
}
