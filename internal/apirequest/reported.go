package apirequest

import (
	"maps"
	"slices"
	"sync"
)

// Reported remembers the last state of each key, so that a state is reported once until it changes. The state "" is normal, and the
// first. The zero value is ready to use. Its methods are safe for concurrent use.
type Reported[K comparable] struct {
	mu     sync.Mutex
	states map[K]string
}

// Change sets the state of a key. It returns the state before, and whether the state changed.
func (r *Reported[K]) Change(key K, state string) (before string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.states[key]
	switch {
	case state == "":
		delete(r.states, key)
	case r.states == nil:
		r.states = map[K]string{key: state}
	default:
		r.states[key] = state
	}
	return before, state != before
}

// Failed records the result of an attempt. It reports whether the attempt failed, and the previous attempt did not fail for the same
// Reason.
func (r *Reported[K]) Failed(key K, err error) bool {
	_, changed := r.Change(key, Reason(err))
	return changed && err != nil
}

// Keys returns the keys that are not in the normal state, in any order.
func (r *Reported[K]) Keys() []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.states))
}
