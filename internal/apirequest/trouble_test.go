package apirequest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTrouble_Messages(t *testing.T) {
	var out bytes.Buffer
	tr := NewTrouble(slog.New(slog.NewTextHandler(&out, nil)), map[string]string{"watch": "listing"})
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
	internal := apierrors.NewInternalError(errors.New("no"))
	refused := errors.New("refused")
	for i, step := range []struct {
		verb    string
		err     error
		lines   []string // parts of the log lines
		problem string   // part of the text of Problem, or ""
	}{
		{"watch", fmt.Errorf("get: %w", context.Canceled), nil, ""},
		{"watch", nil, nil, ""},
		{"watch", forbidden, []string{`level=WARN msg="permission denied" verb=watch instead=listing err=`}, "watch: "},
		{"watch", forbidden, nil, "watch: "},
		{"watch", internal, []string{`level=WARN msg="API request failed; retrying" verb=watch err=`}, "watch: Internal error"},
		{"list", internal, []string{`level=WARN msg="API request failed; retrying" verb=list err=`}, "list: Internal error"},
		{"watch", nil, []string{`level=INFO msg="API request succeeded again" verb=watch`}, "list: Internal error"},
		{"list", nil, []string{`level=INFO msg="API request succeeded again" verb=list`}, ""},
		{"list", refused, []string{`level=WARN msg="API server does not respond; retrying" verb=list err=refused`}, "list: refused"},
		{"list", errors.New("reset"), nil, "list: reset"},
		{"watch", refused, nil, "watch: refused"},
		{"list", context.Canceled, nil, "watch: refused"},
		{"list", forbidden, []string{`level=INFO msg="API server responds again"`, `level=WARN msg="permission denied" verb=list`}, "list: "},
		{"list", refused, []string{`msg="API server does not respond; retrying"`}, "list: refused"},
		{"list", forbidden, []string{`level=INFO msg="API server responds again"`}, "list: "},
		{"list", nil, []string{`level=INFO msg="API request succeeded again" verb=list`}, ""},
		{"list", nil, nil, ""},
	} {
		out.Reset()
		tr.Tried(step.verb, step.err)
		logged := slices.Collect(strings.Lines(out.String()))
		if !slices.EqualFunc(logged, step.lines, strings.Contains) {
			t.Errorf("step %d: it logs %q, want %q", i, logged, step.lines)
		}
		got := ""
		if problem := tr.Problem(); problem != nil {
			got = problem.Error()
		}
		if (got == "") != (step.problem == "") || !strings.Contains(got, step.problem) {
			t.Errorf("step %d: the problem is %q, want %q", i, got, step.problem)
		}
	}
	tr.Tried("get", forbidden)
	tr.Moot("list")
	if tr.Problem() == nil {
		t.Error("another verb's trouble is forgotten")
	}
	tr.Moot("get")
	if err := tr.Problem(); err != nil {
		t.Errorf("a removed verb is a problem: %v", err)
	}
	out.Reset()
	if tr.Tried("get", nil); out.Len() != 0 {
		t.Errorf("logged the end of a removed failure: %s", &out)
	}
}

func TestOutdated(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for want, errs := range map[bool][]error{
		true:  {apierrors.NewConflict(leases, "e", nil), apierrors.NewAlreadyExists(leases, "e"), fmt.Errorf("write: %w", apierrors.NewNotFound(leases, "e"))},
		false: {nil, context.Canceled, apierrors.NewForbidden(leases, "e", nil), apierrors.NewTooManyRequests("", 1)},
	} {
		for _, err := range errs {
			if Outdated(err) != want {
				t.Errorf("%v: %t", err, !want)
			}
		}
	}
}
