package revisions

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/atomic"
)

// broadcaster shows a value to readers and tells handlers about each change of it.
type broadcaster[T any] struct {
	equal func(a, b T) bool
	// wake has room for one, so that whoever posts never waits.
	wake chan struct{}

	mu       sync.Mutex
	value    T
	known    bool
	handlers []*handler[T]
	queue    []delivery[T]
}

type handler[T any] struct {
	call    func(T)
	removed atomic.Bool // values may be on their way to it still
}

// delivery is a value on its way to some handlers.
type delivery[T any] struct {
	value T
	to    []*handler[T]
}

func newBroadcaster[T any](equal func(a, b T) bool) *broadcaster[T] {
	return &broadcaster[T]{equal: equal, wake: make(chan struct{}, 1)}
}

// read returns the value, and whether there has been one yet.
func (b *broadcaster[T]) read() (value T, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.known
}

// post shows a value.
func (b *broadcaster[T]) post(value T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known && b.equal(b.value, value) {
		return
	}
	b.value, b.known = value, true
	b.send(delivery[T]{value, slices.Clone(b.handlers)})
}

// handle adds a handler, which is called with the present value if there is one. Once remove has returned no further call
// of it begins; one that is under way is not waited for, since a handler may remove itself.
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

// deliver calls handlers until ctx ends. One of a further Run goes on where the former
// one stopped.
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
