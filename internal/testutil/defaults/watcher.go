package defaults

import (
	"slices"
	"sync"

	"incumbent.dev/incumbent/pkg/revisions"
)

// Watcher is in sync from the start. Its handlers are called by Set, in the caller's goroutine.
type Watcher struct {
	mu       sync.Mutex
	revision string
	handlers []revisions.DefaultHandler
}

var _ revisions.DefaultWatcher = (*Watcher)(nil)

// New returns a watcher with a default revision. It is "" if there is none.
func New(revision string) *Watcher { return &Watcher{revision: revision} }

// Run blocks until stop is closed.
func (w *Watcher) Run(stop <-chan struct{}) { <-stop }

// HasSynced returns true.
func (w *Watcher) HasSynced() bool { return true }

// GetDefault returns the revision of New or of the last Set.
func (w *Watcher) GetDefault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// AddHandler adds a handler that each later Set calls.
func (w *Watcher) AddHandler(handler revisions.DefaultHandler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers = append(w.handlers, handler)
}

// Set changes the default revision and calls the handlers without holding a mutex.
func (w *Watcher) Set(revision string) {
	w.mu.Lock()
	w.revision = revision
	handlers := slices.Clone(w.handlers)
	w.mu.Unlock()
	for _, handler := range handlers {
		handler(revision)
	}
}
