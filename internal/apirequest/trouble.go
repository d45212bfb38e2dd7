package apirequest

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

// Trouble records which kinds of requests fail now. It logs when a failure begins, changes and ends, not each attempt. Its methods
// are safe for concurrent use.
type Trouble struct {
	log     *slog.Logger
	instead map[string]string

	mu     sync.Mutex
	failed map[string]error // by verb
	away   error            // error of the last request, if it got no response
}

// NewTrouble returns a Trouble that logs to log. instead maps a verb to the behavior of the program while requests of that verb are
// forbidden. It is logged. It may be nil.
func NewTrouble(log *slog.Logger, instead map[string]string) *Trouble {
	return &Trouble{log: log, instead: instead, failed: map[string]error{}}
}

// Tried records the result of one request. The verb is the kind of request, for example "list ingresses". Each kind can fail
// while others succeed. If the server does not respond, that is one failure for all verbs, and any response ends it.
func (t *Trouble) Tried(verb string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the program cancelled it, so the state of the server is unknown
	}
	if Reason(err) == noAnswer {
		t.unanswered(verb, err)
		return
	}
	t.mu.Lock()
	away := t.away != nil
	t.away = nil
	before := t.failed[verb]
	if err == nil {
		delete(t.failed, verb)
	} else {
		t.failed[verb] = fmt.Errorf("%s: %w", verb, err)
	}
	t.mu.Unlock()
	if away {
		t.log.Info("API server responds again")
	}
	switch {
	case Reason(err) == Reason(before):
	case err == nil:
		t.log.Info("API request succeeded again", "verb", verb)
	case apierrors.IsForbidden(err):
		t.log.Warn("permission denied", "verb", verb, "instead", t.instead[verb], "err", err)
	default:
		t.log.Warn("API request failed; retrying", "verb", verb, "err", err)
	}
}

// unanswered records a request without a response.
func (t *Trouble) unanswered(verb string, err error) {
	t.mu.Lock()
	first := t.away == nil
	t.away = fmt.Errorf("%s: %w", verb, err)
	t.mu.Unlock()
	if first {
		t.log.Warn("API server does not respond; retrying", "verb", verb, "err", err)
	}
}

// Moot removes a failure of the verb without a log message, because requests of that verb are no longer needed.
func (t *Trouble) Moot(verb string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failed, verb)
}

const noAnswer = "no response"

// Outdated reports whether the API server rejected a write because the object has changed: it exists already, exists no longer, or
// has another version.
func Outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// Reason classifies an error, because its text can differ between attempts. It returns "" for nil, the reason of the API server, or
// "no response".
func Reason(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, ErrOneAnswer) {
		return ErrOneAnswer.Error()
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return noAnswer
}

// Problem returns the errors of requests that fail now, ordered by verb, or nil.
func (t *Trouble) Problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	problems := []error{t.away}
	for _, verb := range slices.Sorted(maps.Keys(t.failed)) {
		problems = append(problems, t.failed[verb])
	}
	return errors.Join(problems...)
}
