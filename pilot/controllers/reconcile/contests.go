package reconcile

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"sync"
	"time"

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
	written fields // the values that were written, the last one of each path
	times   int    // the number of repairs, which wrote only such values again
	paused  bool
	told    bool
}

func newContests[K comparable](contested func(K, types.NamespacedName), retry func(K)) *contests[K] {
	return &contests[K]{contested: contested, retry: retry, of: map[types.NamespacedName]*contest{}}
}

// wrote records the values that a write changed. The replaced values and the other writer's changes elsewhere do not matter.
// A write that changed only transient fields, for example the observed generation, reverts no other writer.
func (c *contests[K]) wrote(name types.NamespacedName, key K, values fields) {
	if _, only := values[""]; only && len(values) == 1 { // the namespace
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	this := &contest{written: values, times: 1}
	if last := c.of[name]; last != nil {
		this.told, this.times, this.written = last.told, last.times, maps.Clone(last.written)
		if values.in(last.written) {
			this.times++
		}
		maps.Copy(this.written, values)
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

// fields are hashes of values by path.
type fields map[string]uint64

// in reports whether all values are equal in another set.
func (f fields) in(other fields) bool {
	for path, value := range f {
		if known, found := other[path]; !found || known != value {
			return false
		}
	}
	return true
}

// changes returns the values that a write changed in an object of a namespace with this UID. A removed value is null.
func changes(in types.UID, from, to any) fields {
	before, after := fields{}, fields{"": hash(in)}
	before.add("", plain(from))
	after.add("", plain(to))
	for path, value := range before {
		if now, found := after[path]; found && now == value {
			delete(after, path)
		} else if !found {
			after[path] = hash(nil)
		}
	}
	return after
}

// plain returns an object as maps, lists and values.
func plain(object any) (value any) {
	body, _ := json.Marshal(object) // objects of the API server can be marshaled
	_ = json.Unmarshal(body, &value)
	return value
}

// add adds the values below a path. A list is one value, because its elements have no identity.
func (f fields) add(path string, value any) {
	object, is := value.(map[string]any)
	if !is {
		if path != "" {
			f[path] = hash(withoutTransient(value))
		}
		return
	}
	for name, child := range object {
		if !transient[name] {
			f.add(path+"/"+name, child)
		}
	}
}

func hash(value any) uint64 {
	body, _ := json.Marshal(value)
	sum := fnv.New64a()
	sum.Write(body)
	return sum.Sum64()
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
