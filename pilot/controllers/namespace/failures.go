package namespace

import (
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failures knows in which namespaces writes fail at present. The first of a kind is
// logged, and when the last of a kind is over: a missing permission is one line, not
// one for each namespace and try.
type failures struct {
	log *slog.Logger

	mu   sync.Mutex
	kind map[string]string // by namespace
	of   map[string]int    // how many namespaces, by kind
}

func newFailures(log *slog.Logger) *failures {
	return &failures{log: log, kind: map[string]string{}, of: map[string]int{}}
}

// note takes the outcome of one try.
func (f *failures) note(namespace string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, now := f.kind[namespace], kind(err)
	if now != "" {
		f.kind[namespace] = now
		f.of[now]++
		if f.of[now] == 1 {
			f.log.Warn("CA bundle cannot be written, trying on", "namespace", namespace, "error", err)
		}
	} else {
		delete(f.kind, namespace)
	}
	if before == "" {
		return
	}
	if f.of[before]--; f.of[before] == 0 {
		f.log.Info("CA bundle is written again", "namespace", namespace, "after", before)
	}
}

func kind(err error) string {
	if err == nil {
		return ""
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "no answer"
}
