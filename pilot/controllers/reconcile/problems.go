package reconcile

import (
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/errlist"
)

// Event records a Kubernetes Event, like Eventf of record.EventRecorder. It does not wait for the
// API server.
type Event func(object runtime.Object, kind, reason, message string, args ...any)

// Problem is the reason why a request in an object is not fulfilled. It persists until an object
// changes.
type Problem struct {
	// Reason is the reason of the Event, Message its text.
	Reason, Message string
}

// maxMessage bounds the message of a Problem, because it can have parts of objects of users. Events and conditions have limits, and
// the log is shared.
const maxMessage = 1024

// Problemf returns a Problem with a formatted message, on one line. It is cut if it is too long.
func Problemf(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: bounded(fmt.Sprintf(format, args...))}
}

func bounded(message string) string {
	if line := errlist.SingleLine(message, maxMessage); len(line) <= maxMessage {
		return line
	}
	return errlist.SingleLine(message, maxMessage-len("…"))
}

// Error returns the reason and the message.
func (p *Problem) Error() string { return p.Reason + ": " + p.Message }

// ProblemText returns a line for each problem that is not nil.
func ProblemText(all []*Problem) string {
	var texts []string
	for _, problem := range all {
		if problem != nil {
			texts = append(texts, problem.Error())
		}
	}
	return strings.Join(texts, "\n")
}

// Problems tracks the problems of each key. It reports a change of them in the log and as Events
// on the object.
type Problems[K comparable] struct {
	config   ProblemsConfig
	reported apirequest.Reported[K]
}

// ProblemsConfig configures Problems.
type ProblemsConfig struct {
	// Begins is the log message for a problem, Over the log message when no problem is left.
	Begins, Over string
	// Event records each problem. If nil, no Events are recorded.
	Event Event
	// Logger is required.
	Logger *slog.Logger
}

// NewProblems returns a tracker without problems.
func NewProblems[K comparable](config ProblemsConfig) *Problems[K] {
	if config.Event == nil {
		config.Event = func(runtime.Object, string, string, string, ...any) {}
	}
	return &Problems[K]{config: config}
}

// Report sets the problems of a key. It ignores nil problems. about is the object of the Events; it
// may be nil if there is no problem.
func (p *Problems[K]) Report(key K, about runtime.Object, all ...*Problem) {
	now := ProblemText(all)
	switch _, changed := p.reported.Change(key, now); {
	case !changed:
	case now == "":
		p.config.Logger.Info(p.config.Over, "key", key)
	default:
		for _, problem := range all {
			if problem != nil {
				p.config.Logger.Warn(p.config.Begins, "key", key, "reason", problem.Reason, "problem", problem.Message)
				p.config.Event(about, corev1.EventTypeWarning, problem.Reason, "%s", problem.Message)
			}
		}
	}
}

// Failed records an Event with the error of a failed write. It is for Config.Failing.
func (p *Problems[K]) Failed(about runtime.Object, reason string, err error) {
	p.config.Event(about, corev1.EventTypeWarning, reason, "%s", bounded(err.Error()))
}

// Reference returns a reference for an Event. An event recorder cannot derive the names of all kinds.
func Reference(apiVersion, kind string, o metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}
}
