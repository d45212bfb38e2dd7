package gatewaystatus

import (
	"slices"

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

// timed returns the existing conditions, updated to the wanted ones. The time of a condition changes only
// with its status. Conditions of other types stay. As the Gateway API requires, a condition that was
// written for a later generation stays too.
func timed(before, wanted []metav1.Condition, now metav1.Time) []metav1.Condition {
	all := slices.Clone(before)
	for _, c := range wanted {
		c.LastTransitionTime = now
		i := slices.IndexFunc(all, func(b metav1.Condition) bool { return b.Type == c.Type })
		if i < 0 {
			all = append(all, c)
			continue
		}
		if all[i].ObservedGeneration > c.ObservedGeneration {
			continue
		}
		if all[i].Status == c.Status {
			c.LastTransitionTime = all[i].LastTransitionTime
		}
		all[i] = c
	}
	return all
}

// only is like timed, but removes conditions of other types. It is for lists that only this controller
// writes.
func only(before, wanted []metav1.Condition, now metav1.Time) []metav1.Condition {
	before = slices.DeleteFunc(slices.Clone(before), func(b metav1.Condition) bool {
		return !slices.ContainsFunc(wanted, func(c metav1.Condition) bool { return b.Type == c.Type })
	})
	return timed(before, wanted, now)
}
