package revisions

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/atomic"
)

// broadcaster stores a value and calls handlers with each change.
type broadcaster[T any] struct {
	equal func(a, b T) bool
	// wake has capacity one, so post never blocks.
	wake chan struct{}

	mu       sync.Mutex
	value    T
	known    bool
	handlers []*handler[T]
	queue    []delivery[T]
}

type handler[T any] struct {
	call    func(T)
	removed atomic.Bool // the queue may still have values for it
}

// delivery is a queued value with its handlers.
type delivery[T any] struct {
	value T
	to    []*handler[T]
}

func newBroadcaster[T any](equal func(a, b T) bool) *broadcaster[T] {
	return &broadcaster[T]{equal: equal, wake: make(chan struct{}, 1)}
}

// read returns the value, and whether a value was posted.
func (b *broadcaster[T]) read() (value T, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.known
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
	b.send(delivery[T]{value, slices.Clone(b.handlers)})
}

// handle adds a handler, which is called with the current value if there is one. No call begins after remove has returned. remove
// does not wait for a running call, because a handler may remove itself.
func (b *broadcaster[T]) handle(call func(T)) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &handler[T]{call: call}
	b.handlers = append(b.handlers, h)
	if b.known {
		b.send(delivery[T]{b.value, []*handler[T]{h}})
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		h.removed.Store(true)
		b.handlers = slices.DeleteFunc(b.handlers, func(o *handler[T]) bool { return o == h })
	}
}

func (b *broadcaster[T]) send(d delivery[T]) {
	b.queue = append(b.queue, d)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// deliver calls handlers until ctx ends. The next call of deliver continues with the rest of the queue.
func (b *broadcaster[T]) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		if next, ok := b.next(); ok {
			for _, h := range next.to {
				if !h.removed.Load() {
					h.call(next.value)
				}
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
		}
	}
}

func (b *broadcaster[T]) next() (delivery[T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return delivery[T]{}, false
	}
	d := b.queue[0]
	b.queue = b.queue[1:]
	return d, true
}
