package reconcile

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Event writes a Kubernetes Event about an object, as record.EventRecorder's Eventf does. It does
// not wait for the API server.
type Event func(object runtime.Object, kind, reason, message string, args ...any)

// Problem is why something is not done that an object asks for. It stays until an object changes.
type Problem struct{ Reason, Message string }

// Problemf makes one.
func Problemf(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (p *Problem) Error() string { return p.Reason + ": " + p.Message }

// Problems knows what is wrong with the object of each key, and says it when that is something
// else than before: in an Event on the object, and in the log.
type Problems[K comparable] struct {
	config ProblemsConfig

	mu   sync.Mutex
	said map[K]string
}

// ProblemsConfig of Problems.
type ProblemsConfig struct {
	// Begins and Over are the log's messages when something is wrong, and when nothing is any more.
	Begins, Over string
	// Event receives each problem; nil: there are none.
	Event Event
	// Logger must be given.
	Logger *slog.Logger
}

// NewProblems knows of none.
func NewProblems[K comparable](config ProblemsConfig) *Problems[K] {
	if config.Event == nil {
		config.Event = func(runtime.Object, string, string, string, ...any) {}
	}
	return &Problems[K]{config: config, said: map[K]string{}}
}

// Report takes all that is wrong with the object of a key; nil stands for nothing. about is what
// Events are about; it is not needed for an object that does not exist, which has no problem.
func (p *Problems[K]) Report(key K, about runtime.Object, all ...*Problem) {
	var texts []string
	for _, problem := range all {
		if problem != nil {
			texts = append(texts, problem.Error())
		}
	}
	now := strings.Join(texts, "\n")
	switch before := p.change(key, now); {
	case now == before:
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

// Failed is for Config.Failing: why writes for an object fail, in an Event on it.
func (p *Problems[K]) Failed(about runtime.Object, reason string, err error) {
	p.config.Event(about, corev1.EventTypeWarning, reason, "%v", err)
}

func (p *Problems[K]) change(key K, now string) (before string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.said[key]
	if now == "" {
		delete(p.said, key)
	} else {
		p.said[key] = now
	}
	return before
}

// Reference is an object for an Event: a recorder does not know what every kind is called.
func Reference(apiVersion, kind string, o metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}
}
