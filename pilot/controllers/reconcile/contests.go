package reconcile

import (
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// contestedAfter is how often the same change is made at once, each soon after the one before.
	contestedAfter = 3
	// contestGap is how soon after a change another writer must undo it to count as one that contests it.
	contestGap = 10 * time.Second
	// The pause before the change is made again doubles between these.
	firstPause, lastPause = time.Second, 30 * time.Second
)

// contests knows the objects that another writer changes back as often as they are written: by
// two installations that want different content in one object, each as fast as the API server
// answers, say. Repairing them pauses for longer each time.
type contests[K comparable] struct {
	log *slog.Logger
	// again is called with the key of an object whose pause is over.
	again func(key K)

	mu sync.Mutex
	of map[types.NamespacedName]*contest
}

// contest is the last change of an object, and how often it was made in a row. It is forgotten when nobody
// has undone it within contestGap.
type contest struct {
	change [16]byte
	times  int
	pauses bool
}

func newContests[K comparable](log *slog.Logger, again func(K)) *contests[K] {
	return &contests[K]{log: log, again: again, of: map[types.NamespacedName]*contest{}}
}

// changed takes one change of an object, from what it was to what it is.
func (c *contests[K]) changed(kind string, name types.NamespacedName, key K, change [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times, said := 1, false
	if last := c.of[name]; last != nil {
		said = last.times >= contestedAfter
		if last.change == change {
			times = last.times + 1
		}
	}
	pause := pauseAfter(times)
	this := &contest{change: change, times: times, pauses: pause > 0}
	c.of[name] = this
	if pause > 0 {
		time.AfterFunc(pause, func() { c.resume(this, key) })
	}
	time.AfterFunc(pause+contestGap, func() { c.forget(name, this) })
	if pause > 0 && !said {
		c.log.Warn("another writer changes an object back, so it is repaired less often: do two installations want it to differ?",
			"kind", kind, "object", name.String())
	}
}

// pauseAfter is how long to wait after a change that was made so many times in a row.
func pauseAfter(times int) time.Duration {
	if times < contestedAfter {
		return 0
	}
	return min(firstPause<<min(times-contestedAfter, 10), lastPause)
}

// resume ends a pause.
func (c *contests[K]) resume(this *contest, key K) {
	c.mu.Lock()
	this.pauses = false
	c.mu.Unlock()
	c.again(key)
}

func (c *contests[K]) forget(name types.NamespacedName, this *contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[name] == this {
		delete(c.of, name)
	}
}

// pauses reports whether an object is to be left alone for now.
func (c *contests[K]) pauses(name types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.of[name]
	return last != nil && last.pauses
}

// clear forgets all.
func (c *contests[K]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.of)
}

// transient are the fields that differ between two writes of the same content.
var transient = map[string]bool{
	"resourceVersion": true, "generation": true, "observedGeneration": true, "uid": true,
	"creationTimestamp": true, "lastTransitionTime": true, "managedFields": true,
}

// digest is the same for two changes that make the same of the same.
func digest(in types.UID, from, to any) (d [16]byte) {
	sum := fnv.New128a()
	for _, part := range []any{in, from, to} {
		body, _ := json.Marshal(part) // what the API server has sent can be sent
		var fields any
		_ = json.Unmarshal(body, &fields)
		withoutTransient(fields)
		body, _ = json.Marshal(fields)
		sum.Write(append(body, 0))
	}
	sum.Sum(d[:0])
	return d
}

func withoutTransient(fields any) {
	switch of := fields.(type) {
	case map[string]any:
		for name, value := range of {
			if transient[name] {
				delete(of, name)
			} else {
				withoutTransient(value)
			}
		}
	case []any:
		for _, value := range of {
			withoutTransient(value)
		}
	}
}
