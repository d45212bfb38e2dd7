package reconcile

import (
	"encoding/json"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// contestedAfter is the number of repairs in a row after which the next one is delayed.
	contestedAfter = 10
	// contestGap is the time after a write within which another one of the same values is a repair.
	contestGap = 30 * time.Second
	// contestPause is the pause before each further repair.
	contestPause = 30 * time.Second
)

// contests detects objects that another writer keeps reverting, for example a second installation
// with other content. It delays each further repair of such an object.
type contests[K comparable] struct {
	// contested is called for the first delayed repair of an object.
	contested func(key K, name types.NamespacedName)
	// retry is called with the key of an object whose pause has ended.
	retry func(key K)

	mu sync.Mutex
	of map[types.NamespacedName]*contest
}

// contest is the last writes of an object. It is removed if no further write follows within contestGap.
type contest struct {
	in      types.UID // of the namespace
	written []byte    // merge patch with the last value of each field that was written
	times   int       // the number of repairs, which wrote only such values again
	paused  bool
	told    bool
}

func newContests[K comparable](contested func(K, types.NamespacedName), retry func(K)) *contests[K] {
	return &contests[K]{contested: contested, retry: retry, of: map[types.NamespacedName]*contest{}}
}

// wrote records a write in a namespace with this UID, and the merge patch that it was. The replaced values and the other writer's changes
// elsewhere do not matter. A write that changed only transient fields, for example the observed generation, reverts no other writer.
func (c *contests[K]) wrote(name types.NamespacedName, in types.UID, key K, patch []byte) {
	if string(patch) == "{}" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	this := &contest{in: in, written: patch, times: 1}
	if last := c.of[name]; last != nil && last.in == in {
		this.told, this.times = last.told, last.times
		this.written, _ = jsonpatch.MergeMergePatches(last.written, patch) // both are valid
		if jsonpatch.Equal(last.written, this.written) {
			this.times++
		}
	}
	c.of[name] = this
	pause := time.Duration(0)
	if this.paused = this.times >= contestedAfter; this.paused {
		pause = contestPause
		time.AfterFunc(pause, func() { c.resume(this, key) })
	}
	time.AfterFunc(pause+contestGap, func() { c.forget(name, this) })
	if this.paused && !this.told {
		this.told = true
		c.contested(key, name)
	}
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

// changes returns the merge patch from one object to another, without transient fields.
func changes(from, to any) []byte {
	patch, _ := jsonpatch.CreateMergePatch(plain(from), plain(to)) // objects are valid
	return patch
}

// plain returns an object as JSON, without transient fields.
func plain(object any) []byte {
	var value any
	body, _ := json.Marshal(object) // objects of the API server can be marshaled
	_ = json.Unmarshal(body, &value)
	body, _ = json.Marshal(withoutTransient(value))
	return body
}

// withoutTransient removes the transient fields.
func withoutTransient(value any) any {
	switch of := value.(type) {
	case map[string]any:
		for name, child := range of {
			if transient[name] {
				delete(of, name)
			} else {
				withoutTransient(child)
			}
		}
	case []any:
		for _, child := range of {
			withoutTransient(child)
		}
	}
	return value
}
