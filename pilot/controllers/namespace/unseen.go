package namespace

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// unseenLimit is how long a cache may take to show what an answer told of. After that a
// namespace is looked at again by what the cache shows: the object may have been written and
// deleted while there was no watch, of which no event tells.
const unseenLimit = 30 * time.Second

// unseen knows the answers to writes that the caches do not show yet. Without it, a namespace
// that is looked at in between would be written to again.
type unseen struct {
	// overdue is called with a namespace whose answer was not seen within the limit.
	overdue func(namespace string)

	mu      sync.Mutex
	answers map[string]*answer // by namespace
}

// answer is what one write came to.
type answer struct {
	// in is the namespace's UID: one that was made anew has nothing to do with it.
	in types.UID
	// object is the ConfigMap as it was written; nil when the answer only said that the cache
	// is behind, which showed the version stale then, "" for none.
	object *corev1.ConfigMap
	stale  string
}

func newUnseen(overdue func(string)) *unseen {
	return &unseen{overdue: overdue, answers: map[string]*answer{}}
}

// add takes an answer, in the place of an earlier one.
func (u *unseen) add(namespace string, a *answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answers[namespace] = a
	time.AfterFunc(unseenLimit, func() {
		if u.drop(namespace, a) {
			u.overdue(namespace)
		}
	})
}

// of returns the answer that a namespace's cache may not show yet, nil when there is none.
func (u *unseen) of(namespace string, uid types.UID) *answer {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a := u.answers[namespace]; a != nil && a.in == uid {
		return a
	}
	return nil
}

// seen is called when the cache shows a ConfigMap, or that it was deleted. It reports whether
// that ends the wait for it.
func (u *unseen) seen(namespace, version string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.answers[namespace]
	if a == nil || !a.shownBy(version) {
		return false
	}
	delete(u.answers, namespace)
	return true
}

// shownBy reports whether a cache that shows a version shows what the answer told of.
func (a *answer) shownBy(version string) bool {
	if a.object == nil {
		return a.stale == "" || older(a.stale, version)
	}
	return !older(version, a.object.ResourceVersion)
}

// drop forgets an answer, and reports whether it was still there.
func (u *unseen) drop(namespace string, a *answer) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answers[namespace] != a {
		return false
	}
	delete(u.answers, namespace)
	return true
}

// clear forgets all.
func (u *unseen) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.answers)
}

// older reports whether a version is of before another. One that is not known is not.
func older(version, than string) bool {
	order, _ := resourceversion.CompareResourceVersion(version, than) // 0 with an error
	return order < 0
}
