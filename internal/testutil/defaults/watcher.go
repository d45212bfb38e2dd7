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

// New is a watcher with a default revision, "" for none.
func New(revision string) *Watcher { return &Watcher{revision: revision} }

// Run waits for its end.
func (w *Watcher) Run(stop <-chan struct{}) { <-stop }

// HasSynced is always true.
func (w *Watcher) HasSynced() bool { return true }

// GetDefault is what New or the last Set said.
func (w *Watcher) GetDefault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// AddHandler has a handler called by each later Set.
func (w *Watcher) AddHandler(handler revisions.DefaultHandler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers = append(w.handlers, handler)
}

// Set changes the default revision and tells the handlers, with no lock held.
func (w *Watcher) Set(revision string) {
	w.mu.Lock()
	w.revision = revision
	handlers := slices.Clone(w.handlers)
	w.mu.Unlock()
	for _, handler := range handlers {
		handler(revision)
	}
}
