package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// graceLimit bounds the time for which a value stays after its source was deleted. A load balancer can need minutes.
const graceLimit = 5 * time.Minute

// Grace decides whether a status keeps a value, for example addresses, while the object that the value comes from is recreated.
type Grace[K comparable] struct {
	// retry is called with a key when its time has passed.
	retry func(key K)

	mu sync.Mutex
	of map[K]*grace
}

// grace is the state of a key.
type grace struct {
	source types.UID // the last source with a value, or ""
	lost   bool      // a timer runs or has expired
	over   bool
}

// NewGrace returns a Grace that calls retry with each key whose time has passed.
func NewGrace[K comparable](retry func(key K)) *Grace[K] {
	return &Grace[K]{retry: retry, of: map[K]*grace{}}
}

// Keeps records whether the source of a key has a value now, and reports whether the status keeps its last value. It does if the
// source has no value and is not the object that had one, for at most 5 minutes. If an object loses its value, the status follows it.
func (g *Grace[K]) Keeps(key K, source types.UID, has bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.of[key]
	switch {
	case has:
		g.of[key] = &grace{source: source}
		return false
	case now == nil:
		now = &grace{}
		g.of[key] = now
	case now.source != "" && now.source == source:
		return false
	}
	if !now.lost {
		now.lost = true
		time.AfterFunc(graceLimit, func() { g.end(key, now) })
	}
	return !now.over
}

// end ends the time of a key unless its source has a value again.
func (g *Grace[K]) end(key K, of *grace) {
	g.mu.Lock()
	of.over = true
	current := g.of[key] == of
	g.mu.Unlock()
	if current {
		g.retry(key)
	}
}

// Forget removes the state of a deleted object.
func (g *Grace[K]) Forget(key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.of, key)
}
