package reconcile

import (
	"log/slog"
	"sync"

	"incumbent.dev/incumbent/pkg/kube"
)

// failures knows which keys fail at present. The first of a kind is logged, and when the
// last of a kind is over: a missing permission is one line, not one for each key and try.
type failures[K comparable] struct {
	log *slog.Logger

	mu   sync.Mutex
	kind map[K]string   // by key
	of   map[string]int // how many keys, by kind
}

func newFailures[K comparable](log *slog.Logger) *failures[K] {
	return &failures[K]{log: log, kind: map[K]string{}, of: map[string]int{}}
}

// note takes the outcome of one try, and reports whether the key begins to fail by it, or
// fails in another way than before.
func (f *failures[K]) note(key K, err error) (begins bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, now := f.kind[key], kube.Reason(err)
	if now != "" {
		f.kind[key] = now
		f.of[now]++
		if f.of[now] == 1 {
			f.log.Warn("reconciling fails, trying on", "key", key, "err", err)
		}
	} else {
		delete(f.kind, key)
	}
	if before != "" {
		if f.of[before]--; f.of[before] == 0 {
			f.log.Info("reconciling works again", "key", key, "after", before)
		}
	}
	return now != "" && now != before
}
