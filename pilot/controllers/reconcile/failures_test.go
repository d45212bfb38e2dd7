package reconcile

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFailures_LogOncePerReason(t *testing.T) {
	var out bytes.Buffer
	f := newFailures[string](slog.New(slog.NewTextHandler(&out, nil)))
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
	for i, step := range []struct {
		key   string
		err   error
		lines int
	}{
		{"a", nil, 0},
		{"a", forbidden, 1},
		{"b", forbidden, 1},
		{"a", forbidden, 1},
		{"b", errors.New("refused"), 2},
		{"b", nil, 3}, // last of this reason
		{"c", forbidden, 3},
		{"a", nil, 3},
		{"c", nil, 4},
		{"a", forbidden, 5},
	} {
		f.note(step.key, step.err)
		if got := strings.Count(out.String(), "\n"); got != step.lines {
			t.Fatalf("step %d: %d lines, want %d:\n%s", i, got, step.lines, &out)
		}
	}
}
