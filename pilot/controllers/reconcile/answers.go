package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/pkg/kube"
)

// unseenLimit is how long a cache may take to show what an answer told of. After that a
// key is looked at again by what the cache shows: the object may have been written and
// deleted while there was no watch, of which no event tells.
const unseenLimit = 30 * time.Second

// answers knows the answers to writes that a cache does not show yet. Without it, a key
// that is looked at in between would be written for again.
type answers[K comparable, T Object] struct {
	// overdue is called with the key of an answer that was not seen within the limit.
	overdue func(key K)

	mu     sync.Mutex
	unseen map[types.NamespacedName]*answer[K, T]
}

// answer is what one write came to.
type answer[K comparable, T Object] struct {
	key K
	// in is Ref.In at the time of the write.
	in types.UID
	// object is as it was written; nil when the answer only said that the cache is
	// behind, which showed the version stale then, "" for none.
	object T
	stale  string
}

func newAnswers[K comparable, T Object](overdue func(K)) *answers[K, T] {
	return &answers[K, T]{overdue: overdue, unseen: map[types.NamespacedName]*answer[K, T]{}}
}

// add takes an answer, in the place of an earlier one.
func (u *answers[K, T]) add(name types.NamespacedName, a *answer[K, T]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unseen[name] = a
	time.AfterFunc(unseenLimit, func() {
		if u.drop(name, a) {
			u.overdue(a.key)
		}
	})
}

// of returns the answer that the cache may not show yet, nil when there is none.
func (u *answers[K, T]) of(name types.NamespacedName, in types.UID) *answer[K, T] {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.unseen[name]; a != nil && a.in == in {
		return a
	}
	return nil
}

// seen is called when the cache shows an object, or that it was deleted. It returns the
// answer whose wait that ends, nil when there is none.
func (u *answers[K, T]) seen(name types.NamespacedName, version string) *answer[K, T] {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.unseen[name]
	if a == nil || !a.shownBy(version) {
		return nil
	}
	delete(u.unseen, name)
	return a
}

// shownBy reports whether a cache that shows a version shows what the answer told of.
func (a *answer[K, T]) shownBy(version string) bool {
	var none T
	if a.object == none {
		return a.stale == "" || kube.Older(a.stale, version)
	}
	return !kube.Older(version, a.object.GetResourceVersion())
}

// drop forgets an answer, and reports whether it was still there.
func (u *answers[K, T]) drop(name types.NamespacedName, a *answer[K, T]) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.unseen[name] != a {
		return false
	}
	delete(u.unseen, name)
	return true
}

// clear forgets all.
func (u *answers[K, T]) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.unseen)
}
