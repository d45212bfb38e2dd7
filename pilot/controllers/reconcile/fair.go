package reconcile

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// fair is the order of the waiting keys. Namespaces take turns, so that a namespace with many keys delays a key of another
// namespace by at most one key per turn. A namespace has no turn while most of its keys are reconciled, so that slow keys of a namespace
// leave workers for others.
type fair[K comparable] struct {
	namespace func(K) string
	most      int

	mu     sync.Mutex
	turns  workqueue.Queue[string]       // each namespace with keys once, unless it has no turn
	keys   map[string]workqueue.Queue[K] // by namespace
	active map[string]int                // keys that are reconciled, by namespace
	ready  int                           // keys of the namespaces in turns
}

func newFair[K comparable](namespace func(K) string, most int) *fair[K] {
	return &fair[K]{
		namespace: namespace, most: most,
		turns: workqueue.DefaultQueue[string](), keys: map[string]workqueue.Queue[K]{}, active: map[string]int{},
	}
}

// Touch does nothing: a key that waits already keeps its place.
func (f *fair[K]) Touch(K) {}

// Push adds a key.
func (f *fair[K]) Push(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	namespace := f.namespace(key)
	keys := f.keys[namespace]
	if keys == nil {
		keys = workqueue.DefaultQueue[K]()
		f.keys[namespace] = keys
	}
	keys.Push(key)
	switch {
	case f.active[namespace] >= f.most:
	case keys.Len() == 1:
		f.enter(namespace)
	default:
		f.ready++
	}
}

// enter gives a namespace its turn.
func (f *fair[K]) enter(namespace string) {
	f.turns.Push(namespace)
	f.ready += f.keys[namespace].Len()
}

// Len returns the number of keys that Pop can return. A worker that waits in Get continues if it is not 0.
func (f *fair[K]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready
}

// Pop removes and returns the oldest key of the namespace whose turn it is. done must be called with it.
func (f *fair[K]) Pop() K {
	f.mu.Lock()
	defer f.mu.Unlock()
	namespace := f.turns.Pop()
	keys := f.keys[namespace]
	f.ready -= keys.Len()
	key := keys.Pop()
	f.active[namespace]++
	switch {
	case keys.Len() == 0:
		delete(f.keys, namespace)
	case f.active[namespace] < f.most:
		f.enter(namespace)
	}
	return key
}

// done records the end of the reconcile of a key. The worker then calls Get, so no other worker needs a signal.
func (f *fair[K]) done(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	namespace := f.namespace(key)
	if f.active[namespace] == f.most && f.keys[namespace] != nil {
		f.enter(namespace)
	}
	if f.active[namespace]--; f.active[namespace] == 0 {
		delete(f.active, namespace)
	}
}
