package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Trouble keeps which kinds of requests fail at present, and logs when a failure begins,
// changes and ends, not each try. Its methods may be called from any goroutine.
type Trouble struct {
	log     *slog.Logger
	instead map[string]string

	mu     sync.Mutex
	failed map[string]error // by verb, or by a condition's name
	away   error            // the last request, if it got no answer
}

// NewTrouble returns a Trouble that logs to log. Its keys are the verbs that Tried is called with; instead says for each,
// in words for the log, what the program does while requests of that verb are forbidden. It may be nil.
func NewTrouble(log *slog.Logger, instead map[string]string) *Trouble {
	return &Trouble{log: log, instead: instead, failed: map[string]error{}}
}

// Tried takes the outcome of one request. The verb says in words of what kind it was, such as "list ingresses": each
// can fail while others succeed. A server that does not answer at all is one trouble whatever the verb, and over with
// any answer.
func (t *Trouble) Tried(verb string, err error) {
	if errors.Is(err, context.Canceled) {
		return // we ended it ourselves, which says nothing of the server
	}
	if Reason(err) == noAnswer {
		t.unanswered(verb, err)
		return
	}
	t.mu.Lock()
	away := t.answered()
	before := t.failed[verb]
	if err == nil {
		delete(t.failed, verb)
	} else {
		t.failed[verb] = fmt.Errorf("%s: %w", verb, err)
	}
	t.mu.Unlock()
	if away {
		t.log.Info("API server answers again")
	}
	switch {
	case Reason(err) == Reason(before):
	case err == nil:
		t.log.Info("works again", "verb", verb)
	case apierrors.IsForbidden(err):
		t.log.Warn("permission is missing", "verb", verb, "instead", t.instead[verb], "err", err)
	default:
		t.log.Warn("API server does not answer as it should, trying on", "verb", verb, "err", err)
	}
}

// Condition is a fault other than a failed request, such as the absence of an object that is needed. It is logged when it
// begins and when it ends.
type Condition struct {
	// Name tells it from other conditions and from verbs. NewTrouble's instead may have an entry for it.
	Name string
	// Begins and Ends are the messages that are logged.
	Begins, Ends string
	// About are keys and values for both lines.
	About []any
}

// Observe takes whether a condition holds: with a problem, which Problem includes from now on, or without.
func (t *Trouble) Observe(c Condition, problem error) {
	t.mu.Lock()
	_, before := t.failed[c.Name]
	if problem == nil {
		delete(t.failed, c.Name)
	} else {
		t.failed[c.Name] = problem
	}
	t.mu.Unlock()
	switch {
	case before == (problem != nil):
	case before:
		t.log.Info(c.Ends, c.About...)
	default:
		about := c.About
		if instead, ok := t.instead[c.Name]; ok {
			about = append(slices.Clone(about), "instead", instead)
		}
		t.log.Warn(c.Begins, about...)
	}
}

// unanswered takes a request that got no answer.
func (t *Trouble) unanswered(verb string, err error) {
	t.mu.Lock()
	first := t.away == nil
	t.away = fmt.Errorf("%s: %w", verb, err)
	t.mu.Unlock()
	if first {
		t.log.Warn("API server does not answer, trying on", "verb", verb, "err", err)
	}
}

// answered notes that the server is there, and reports whether it was away.
func (t *Trouble) answered() (wasAway bool) {
	wasAway = t.away != nil
	t.away = nil
	return wasAway
}

// Moot forgets a failure of the verb, whose requests are no longer needed: it is no part of Problem any more, and no line
// in the log says that it is over.
func (t *Trouble) Moot(verb string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failed, verb)
}

const noAnswer = "no answer"

// Reason tells states of an API server apart, as the texts of errors differ from try to try: "" for no error,
// the reason that the server gave, or "no answer".
func Reason(err error) string {
	if err == nil {
		return ""
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return noAnswer
}

// Problem is the errors of requests that fail at present, in the order of verbs; nil when none does.
func (t *Trouble) Problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	problems := []error{t.away}
	for _, verb := range slices.Sorted(maps.Keys(t.failed)) {
		problems = append(problems, t.failed[verb])
	}
	return errors.Join(problems...)
}
