package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTroubleIsLoggedOncePerState(t *testing.T) {
	var out bytes.Buffer
	tr := NewTrouble(slog.New(slog.NewTextHandler(&out, nil)), nil)
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
	lines := func() int { return strings.Count(out.String(), "\n") }
	for i, step := range []struct {
		verb  string
		err   error
		lines int
	}{
		{"list", nil, 0},
		{"list", errors.New("connection refused"), 1},
		{"list", fmt.Errorf("connection reset %d", 7), 1},
		{"watch", errors.New("connection refused"), 1},
		{"list", context.Canceled, 1},
		{"list", forbidden, 3}, // the server is back, and refuses
		{"get", forbidden, 4},
		{"list", forbidden, 4},
		{"get", nil, 5},
		{"list", errors.New("connection refused"), 6},
		{"list", forbidden, 7},
		{"list", nil, 8},
		{"list", nil, 8},
	} {
		tr.Tried(step.verb, step.err)
		if lines() != step.lines {
			t.Fatalf("step %d: %d lines, want %d:\n%s", i, lines(), step.lines, &out)
		}
		if failing := tr.Problem() != nil; failing != (step.lines > 0 && step.lines < 8) {
			t.Errorf("step %d: problem is %v", i, tr.Problem())
		}
	}
}
