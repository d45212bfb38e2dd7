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
	// contestedAfter is the number of equal changes in a row after which the next one is delayed.
	contestedAfter = 3
	// contestGap is the time after a change within which a revert counts as contesting.
	contestGap = 10 * time.Second
	// The pause before the next equal change doubles from firstPause to lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// contests detects objects that another writer keeps reverting, for example a second installation
// with other content. It increases the pause before each repair of such an object.
type contests[K comparable] struct {
	log *slog.Logger
	// retry is called with the key of an object whose pause has ended.
	retry func(key K)

	mu sync.Mutex
	of map[types.NamespacedName]*contest
}

// contest is the last change of an object and the number of times it was made in a row. It is
// removed if the change is not reverted within contestGap.
type contest struct {
	change [16]byte
	times  int
	paused bool
}

func newContests[K comparable](log *slog.Logger, retry func(K)) *contests[K] {
	return &contests[K]{log: log, retry: retry, of: map[types.NamespacedName]*contest{}}
}

// changed records one change of an object.
func (c *contests[K]) changed(kind string, name types.NamespacedName, key K, change [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := 1
	logged := false
	if last := c.of[name]; last != nil {
		logged = last.times >= contestedAfter
		if last.change == change {
			times = last.times + 1
		}
	}
	pause := pauseAfter(times)
	this := &contest{change: change, times: times, paused: pause > 0}
	c.of[name] = this
	if pause > 0 {
		time.AfterFunc(pause, func() { c.resume(this, key) })
	}
	time.AfterFunc(pause+contestGap, func() { c.forget(name, this) })
	if pause > 0 && !logged {
		c.log.Warn("another writer keeps reverting an object; repairing it less often. Check for a second installation that manages it.",
			"kind", kind, "object", name.String())
	}
}

// pauseAfter returns the pause after a change that was made this many times in a row.
func pauseAfter(times int) time.Duration {
	if times < contestedAfter {
		return 0
	}
	return min(firstPause<<min(times-contestedAfter, 10), lastPause)
}

// resume ends a pause.
func (c *contests[K]) resume(this *contest, key K) {
	c.mu.Lock()
	this.paused = false
	c.mu.Unlock()
	c.retry(key)
}

func (c *contests[K]) forget(name types.NamespacedName, this *contest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[name] == this {
		delete(c.of, name)
	}
}

// paused reports whether an object must not be written yet.
func (c *contests[K]) paused(name types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.of[name]
	return last != nil && last.paused
}

// clear removes all contests.
func (c *contests[K]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.of)
}

// transient lists the fields that differ between two writes of the same content.
var transient = map[string]bool{
	"resourceVersion": true, "generation": true, "observedGeneration": true, "uid": true,
	"creationTimestamp": true, "lastTransitionTime": true, "managedFields": true,
}

// digest returns a hash of a change. It ignores transient fields.
func digest(in types.UID, from, to any) (d [16]byte) {
	sum := fnv.New128a()
	for _, part := range []any{in, from, to} {
		body, _ := json.Marshal(part) // objects of the API server can be marshaled
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
