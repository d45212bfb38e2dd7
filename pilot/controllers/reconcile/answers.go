package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/watch"
)

// unseenLimit bounds the wait for a cache to show a write. Afterwards the key is reconciled from
// the cache, because an object that was written and deleted while the watch was down causes no
// event.
const unseenLimit = 30 * time.Second

// answers holds the responses to writes that a cache does not show yet, so that a key that is
// reconciled before then is not written twice.
type answers[K comparable, T Object] struct {
	// overdue is called with the key of an answer that the cache did not show within unseenLimit.
	overdue func(key K)

	mu     sync.Mutex
	unseen map[types.NamespacedName]*answer[K, T]
}

// answer is the response to one write.
type answer[K comparable, T Object] struct {
	key K
	// in is Ref.In at the time of the write.
	in types.UID
	// object is the written object. It is nil if the write was rejected because the cache was
	// stale.
	object T
	// stale is the version that the stale cache showed, or "" if it showed no object.
	stale string
}

func newAnswers[K comparable, T Object](overdue func(K)) *answers[K, T] {
	return &answers[K, T]{overdue: overdue, unseen: map[types.NamespacedName]*answer[K, T]{}}
}

// add records an answer and replaces an earlier answer for the same object.
func (s *answers[K, T]) add(name types.NamespacedName, a *answer[K, T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen[name] = a
	time.AfterFunc(unseenLimit, func() {
		if s.drop(name, a) {
			s.overdue(a.key)
		}
	})
}

// of returns the answer that the cache may not show yet, or nil.
func (s *answers[K, T]) of(name types.NamespacedName, in types.UID) *answer[K, T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.unseen[name]; a != nil && a.in == in {
		return a
	}
	return nil
}

// seen is called for each event of the cache. It removes and returns the answer that the event
// shows, or returns nil.
func (s *answers[K, T]) seen(name types.NamespacedName, version string) *answer[K, T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.unseen[name]
	if a == nil || !a.shownBy(version) {
		return nil
	}
	delete(s.unseen, name)
	return a
}

// shownBy reports whether a cache at this version includes the answer.
func (a *answer[K, T]) shownBy(version string) bool {
	var none T
	if a.object == none {
		return a.stale == "" || watch.Older(a.stale, version)
	}
	return !watch.Older(version, a.object.GetResourceVersion())
}

// drop removes an answer and reports whether it was still recorded.
func (s *answers[K, T]) drop(name types.NamespacedName, a *answer[K, T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unseen[name] != a {
		return false
	}
	delete(s.unseen, name)
	return true
}

// clear removes all answers.
func (s *answers[K, T]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.unseen)
}
