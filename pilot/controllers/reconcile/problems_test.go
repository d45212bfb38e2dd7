package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A problem is said when it begins and when it becomes another one, in an Event and in the log; that
// all is well again is said in the log, once.
func TestProblemsAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	var events []string
	problems := NewProblems[string](ProblemsConfig{
		Begins: "it is wrong", Over: "it is right", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Event: func(o runtime.Object, kind, reason, message string, args ...any) {
			about, _ := o.(*corev1.ObjectReference)
			events = append(events, about.Name+" "+kind+" "+reason+" "+fmt.Sprintf(message, args...))
		},
	})
	about := Reference("g/v", "K", &metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7"})
	if *about != (corev1.ObjectReference{APIVersion: "g/v", Kind: "K", Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7"}) {
		t.Errorf("the reference is %+v", about)
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
		t.Errorf("the Events are\n%q, want\n%q", events, want)
	}
	if wrong, right := strings.Count(log.String(), "it is wrong"), strings.Count(log.String(), "it is right"); wrong != 5 || right != 1 {
		t.Errorf("the log says %d and %d times:\n%s", wrong, right, &log)
	}
	if n := len(problems.said); n != 1 {
		t.Errorf("%d are remembered", n)
	}
	problems.Report("a", nil)
	if n := len(problems.said); n != 0 {
		t.Errorf("of an object that is gone, %d are remembered", n)
	}
	NewProblems[string](ProblemsConfig{Logger: slog.New(slog.DiscardHandler)}).Report("a", about, first)
}
