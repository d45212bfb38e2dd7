package reconcile

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// derived is a value that was computed from one version of an object.
type derived[T Object, V any] struct {
	from  T
	value V
}

// Derive returns a function that computes a value from an object of a cache. It computes the value of a cached object once
// per version, also if the value describes an error, and drops it with the object. Callers must not modify the value.
// Derive must be called before the first Warm or Run.
func Derive[K comparable, T Object, V any](k *Cache[K, T], compute func(T) V) func(T) V {
	values := &sync.Map{}
	k.derived = append(k.derived, values)
	return func(o T) V {
		name, _ := cache.MetaNamespaceKeyFunc(o) // an Object has a name
		if last, found := values.Load(name); found {
			if d, _ := last.(derived[T, V]); d.from == o {
				return d.value
			}
		}
		d := derived[T, V]{o, compute(o)}
		values.Store(name, d)
		// After the store: gone may have been called before it.
		if k.Get(o.GetNamespace(), o.GetName()) != o {
			values.Delete(name)
		}
		return d.value
	}
}

// gone drops the derived values of a deleted object.
func (k *Cache[K, T]) gone(obj any) {
	name, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	for _, values := range k.derived {
		values.Delete(name)
	}
}
