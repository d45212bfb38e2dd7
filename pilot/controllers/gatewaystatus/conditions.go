package gatewaystatus

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition makes one without its time. "" as the message is its reason.
func condition[T, R ~string](kind T, status bool, reason R, message string, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), Message: message, ObservedGeneration: generation,
	}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// timed are wanted conditions with their times: that of before where the status has not changed.
// Conditions of other types that there were stay, before them, as they were; and so does one that was
// written for a later generation, as the Gateway API asks of implementations.
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

// only are the wanted conditions with their times, and no other: for a list that is this
// controller's alone.
func only(before, wanted []metav1.Condition, now metav1.Time) []metav1.Condition {
	before = slices.DeleteFunc(slices.Clone(before), func(b metav1.Condition) bool {
		return !slices.ContainsFunc(wanted, func(c metav1.Condition) bool { return b.Type == c.Type })
	})
	return timed(before, wanted, now)
}
