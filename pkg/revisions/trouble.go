package revisions

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

// trouble knows which requests fail, and logs when that begins, changes and ends: not
// each try.
type trouble struct {
	log *slog.Logger
	// instead says by verb what happens while it is forbidden.
	instead map[string]string

	mu     sync.Mutex
	failed map[string]error // by verb
}

// tried takes the outcome of one request.
func (t *trouble) tried(verb string, err error) {
	if errors.Is(err, context.Canceled) {
		return // we ended it ourselves, which says nothing of the server
	}
	t.mu.Lock()
	before := t.failed[verb]
	if err == nil {
		delete(t.failed, verb)
	} else {
		t.failed[verb] = fmt.Errorf("%s: %w", verb, err)
	}
	t.mu.Unlock()
	switch {
	case err == nil && before == nil, err != nil && kind(err) == kind(before):
	case err == nil:
		t.log.Info("works again", "verb", verb)
	case apierrors.IsForbidden(err):
		t.log.Warn("permission is missing", "verb", verb, "instead", t.instead[verb], "error", err)
	default:
		t.log.Warn("API server does not answer as it should, trying on", "verb", verb, "error", err)
	}
}

// moot forgets what became of a verb that is not needed any more.
func (t *trouble) moot(verb string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.failed, verb)
}

// kind tells states apart; the texts of errors differ from try to try.
func kind(err error) string {
	if err == nil {
		return ""
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "no answer"
}

// problem is what fails at present, in the order of verbs.
func (t *trouble) problem() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	for _, verb := range slices.Sorted(maps.Keys(t.failed)) {
		problems = append(problems, t.failed[verb])
	}
	return errors.Join(problems...)
}
