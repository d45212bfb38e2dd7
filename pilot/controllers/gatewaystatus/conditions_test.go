package gatewaystatus

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	early = metav1.NewTime(time.Unix(1_000_000, 0))
	late  = metav1.NewTime(time.Unix(2_000_000, 0))
)

func conditionOf(kind string, status metav1.ConditionStatus, reason string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at}
}

func TestTimed(t *testing.T) {
	before := []metav1.Condition{
		conditionOf("Odd", "Unknown", "Theirs", early), conditionOf("Accepted", "True", "Old", early), conditionOf("Programmed", "False", "Old", early),
	}
	wanted := []metav1.Condition{
		conditionOf("Accepted", "True", "New", metav1.Time{}), conditionOf("Programmed", "True", "New", metav1.Time{}), conditionOf("Fresh", "True", "New", metav1.Time{}),
	}
	want := []metav1.Condition{
		conditionOf("Odd", "Unknown", "Theirs", early), conditionOf("Accepted", "True", "New", early),
		conditionOf("Programmed", "True", "New", late), conditionOf("Fresh", "True", "New", late),
	}
	kept := slices.Clone(before)
	if got := timed(before, wanted, late); !slices.Equal(got, want) {
		t.Errorf("conditions are %v, want %v", got, want)
	}
	if got := only(before, wanted, late); !slices.Equal(got, want[1:]) {
		t.Errorf("only returned %v, want %v", got, want[1:])
	}
	if !slices.Equal(before, kept) {
		t.Error("the existing conditions were modified")
	}
}

func TestTimed_LaterGeneration(t *testing.T) {
	at := func(kind string, status metav1.ConditionStatus, generation int64, when metav1.Time) metav1.Condition {
		c := conditionOf(kind, status, "R", when)
		c.ObservedGeneration = generation
		return c
	}
	before := []metav1.Condition{at("Odd", "True", 1_000_000, early), at("Accepted", "False", 5, early), at("Programmed", "False", 6, early)}
	wanted := []metav1.Condition{at("Accepted", "True", 5, metav1.Time{}), at("Programmed", "True", 5, metav1.Time{})}
	want := []metav1.Condition{before[0], at("Accepted", "True", 5, late), before[2]}
	if got := timed(before, wanted, late); !slices.Equal(got, want) {
		t.Errorf("conditions are %v, want %v", got, want)
	}
}
