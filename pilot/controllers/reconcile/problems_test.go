package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestProblems_ReportChanges(t *testing.T) {
	var log bytes.Buffer
	var events []string
	problems := NewProblems[string](ProblemsConfig{
		Begins: "problem found", Over: "problems solved", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Event: func(o runtime.Object, kind, reason, message string, args ...any) {
			about, _ := o.(*corev1.ObjectReference)
			events = append(events, about.Name+" "+kind+" "+reason+" "+fmt.Sprintf(message, args...))
		},
	})
	about := Reference("g/v", "K", &metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7"})
	if *about != (corev1.ObjectReference{APIVersion: "g/v", Kind: "K", Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7"}) {
		t.Errorf("reference is %+v", about)
	}
	first, second := Problemf("First", "%d%%", 1), Problemf("Second", "two")
	for _, all := range [][]*Problem{{nil}, {first}, {nil, first}, {first, nil, second}, {first, second}, {second}, {}, {nil}, {first}} {
		problems.Report("a", about, all...)
	}
	problems.Failed(about, "NotWritten", errors.New("100% no"))
	want := []string{
		"a Warning First 1%", "a Warning First 1%", "a Warning Second two", "a Warning Second two", "a Warning First 1%", "a Warning NotWritten 100% no",
	}
	if !slices.Equal(events, want) {
		t.Errorf("Events:\n%q, want\n%q", events, want)
	}
	if found, solved := strings.Count(log.String(), "problem found"), strings.Count(log.String(), "problems solved"); found != 5 || solved != 1 {
		t.Errorf("logged %d and %d times:\n%s", found, solved, &log)
	}
	if n := len(problems.reported.Keys()); n != 1 {
		t.Errorf("%d keys tracked", n)
	}
	problems.Report("a", nil)
	if n := len(problems.reported.Keys()); n != 0 {
		t.Errorf("%d keys tracked after the last report", n)
	}
	NewProblems[string](ProblemsConfig{Logger: slog.New(slog.DiscardHandler)}).Report("a", about, first)
}

// A message can contain a part of a large object.
func TestProblem_IsCut(t *testing.T) {
	var events []string
	problems := NewProblems[string](ProblemsConfig{
		Event: func(_ runtime.Object, _, _, message string, args ...any) {
			events = append(events, fmt.Sprintf(message, args...))
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	long := strings.Repeat("ü", maxMessage)
	problems.Report("a", nil, Problemf("A", "%s", long))
	problems.Failed(nil, "B", errors.New(long))
	problems.Report("a", nil, Problemf("A", "%s", long[:maxMessage]))
	for i, got := range events {
		if len(got) > maxMessage || len(got) < maxMessage-4 || !utf8.ValidString(got) || strings.HasSuffix(got, "…") != (i < 2) {
			t.Errorf("message %d has %d bytes: %q", i, len(got), got)
		}
	}
	if len(events) != 3 {
		t.Errorf("%d Events", len(events))
	}
}
