package apirequest

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReported(t *testing.T) {
	var r Reported[string]
	for i, step := range []struct {
		key, state, before string
		keys               []string
	}{
		{"a", "", "", nil},
		{"a", "x", "", []string{"a"}},
		{"a", "x", "x", []string{"a"}},
		{"b", "x", "", []string{"a", "b"}},
		{"a", "y", "x", []string{"a", "b"}},
		{"a", "", "y", []string{"b"}},
		{"a", "y", "", []string{"a", "b"}},
	} {
		before, changed := r.Change(step.key, step.state)
		if before != step.before || changed != (step.state != step.before) {
			t.Errorf("step %d: before %q, changed %v", i, before, changed)
		}
		if keys := r.Keys(); !slices.Equal(slices.Sorted(slices.Values(keys)), step.keys) {
			t.Errorf("step %d: keys %q, want %q", i, keys, step.keys)
		}
	}
}

func TestReported_Failed(t *testing.T) {
	var r Reported[int]
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
	for i, step := range []struct {
		err  error
		want bool
	}{{nil, false}, {errors.New("refused"), true}, {errors.New("reset"), false}, {forbidden, true}, {forbidden, false}, {nil, false}, {forbidden, true}} {
		if got := r.Failed(7, step.err); got != step.want {
			t.Errorf("step %d: news %v, want %v", i, got, step.want)
		}
	}
}
