package reconcile

import "k8s.io/client-go/util/workqueue"

// fair is the order of the waiting keys. Namespaces take turns, so that a namespace with many keys delays a key of another
// namespace by at most one key per turn.
type fair[K comparable] struct {
	namespace func(K) string
	turns     workqueue.Queue[string]       // each namespace with keys once
	keys      map[string]workqueue.Queue[K] // by namespace
	waiting   int
}

func newFair[K comparable](namespace func(K) string) *fair[K] {
	return &fair[K]{namespace: namespace, turns: workqueue.DefaultQueue[string](), keys: map[string]workqueue.Queue[K]{}}
}

// Touch does nothing: a key that waits already keeps its place.
func (f *fair[K]) Touch(K) {}

// Push adds a key.
func (f *fair[K]) Push(key K) {
	namespace := f.namespace(key)
	keys := f.keys[namespace]
	if keys == nil {
		keys = workqueue.DefaultQueue[K]()
		f.keys[namespace] = keys
		f.turns.Push(namespace)
	}
	keys.Push(key)
	f.waiting++
}

// Len returns the number of keys.
func (f *fair[K]) Len() int { return f.waiting }

// Pop removes and returns the oldest key of the namespace whose turn it is.
func (f *fair[K]) Pop() K {
	namespace := f.turns.Pop()
	keys := f.keys[namespace]
	key := keys.Pop()
	f.waiting--
	if keys.Len() == 0 {
		delete(f.keys, namespace)
	} else {
		f.turns.Push(namespace)
	}
	return key
}
