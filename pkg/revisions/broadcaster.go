package revisions

import (
	"slices"
	"sync"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/internal/hooks"
)

// broadcaster stores a value and calls handlers with each change.
type broadcaster[T any] struct {
	equal func(a, b T) bool
	calls hooks.Queue // one call of all handlers for each value

	mu       sync.Mutex
	value    T
	known    bool
	handlers []*handler[T]
}

type handler[T any] struct {
	call    func(T)
	removed atomic.Bool // the queue may still have values for it
}

func newBroadcaster[T any](equal func(a, b T) bool) *broadcaster[T] {
	return &broadcaster[T]{equal: equal}
}

// read returns the value, and whether a value was posted.
func (b *broadcaster[T]) read() (value T, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.known
}

// HasSynced reports whether a value was posted.
func (b *broadcaster[T]) HasSynced() bool {
	_, known := b.read()
	return known
}

// post sets the value.
func (b *broadcaster[T]) post(value T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known && b.equal(b.value, value) {
		return
	}
	b.value = value
	b.known = true
	b.send(value, slices.Clone(b.handlers))
}

// handle adds a handler, which is called with the current value if there is one. No call begins after remove has returned. remove
// does not wait for a running call, because a handler may remove itself.
func (b *broadcaster[T]) handle(call func(T)) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &handler[T]{call: call}
	b.handlers = append(b.handlers, h)
	if b.known {
		b.send(b.value, []*handler[T]{h})
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		h.removed.Store(true)
		b.handlers = slices.DeleteFunc(b.handlers, func(o *handler[T]) bool { return o == h })
	}
}

// send queues the call of handlers. The caller holds mu.
func (b *broadcaster[T]) send(value T, to []*handler[T]) {
	b.calls.Do(func() {
		for _, h := range to {
			if !h.removed.Load() {
				h.call(value)
			}
		}
	})
}
