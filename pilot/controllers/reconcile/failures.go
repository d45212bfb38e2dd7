package reconcile

import (
	"log/slog"
	"sync"

	"incumbent.dev/incumbent/internal/apirequest"
)

// failures tracks the failing keys. It logs the first failure of each reason and the end of the
// last, so that a missing permission causes one line and not one per key and attempt.
type failures[K comparable] struct {
	log *slog.Logger

	mu      sync.Mutex
	reasons apirequest.Reported[K]
	keys    map[string]int // number of failing keys, by reason
}

func newFailures[K comparable](log *slog.Logger) *failures[K] {
	return &failures[K]{log: log, keys: map[string]int{}}
}

// note records the result of one reconcile. It reports whether the key started to fail, or fails
// for a new reason.
func (f *failures[K]) note(key K, err error) (started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := apirequest.Reason(err)
	before, changed := f.reasons.Change(key, now)
	if !changed {
		return false
	}
	if now != "" {
		f.keys[now]++
		if f.keys[now] == 1 {
			f.log.Warn("reconcile failed; retrying", "key", key, "err", err)
		}
	}
	if before != "" {
		if f.keys[before]--; f.keys[before] == 0 {
			f.log.Info("reconcile succeeded again", "key", key, "reason", before)
		}
	}
	return now != ""
}
