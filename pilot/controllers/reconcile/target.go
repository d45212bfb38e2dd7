package reconcile

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/apirequest"
)

// Ref identifies an object.
type Ref struct {
	// Namespace and Name identify the object.
	Namespace, Name string
	// In is the UID of the namespace of the object, or "". If set, an answer for an earlier
	// namespace of the same name does not count.
	In types.UID
}

// Target is an object that the reconcile of a key writes.
type Target[K comparable, T Object] struct {
	cache *Cache[K, T]
	key   K
	ref   Ref
}

// At returns the Target for an object that may not exist yet.
func (k *Cache[K, T]) At(key K, ref Ref) Target[K, T] { return Target[K, T]{k, key, ref} }

func (t Target[K, T]) name() types.NamespacedName {
	return types.NamespacedName{Namespace: t.ref.Namespace, Name: t.ref.Name}
}

// Latest returns the object, or nil if it does not exist. Until the cache shows the last write of
// this controller, Latest returns the object as written. If known is false, the cache is stale or
// another writer keeps reverting the object. The caller then does nothing; the key is reconciled
// again later. Callers must not modify the object.
func (t Target[K, T]) Latest() (object T, known bool) {
	if t.cache.contests.paused(t.name()) {
		return object, false
	}
	// The answers are read before the cache, so that an answer that was seen is in the cache.
	a := t.cache.answers.of(t.name(), t.ref.In)
	shown := t.cache.Get(t.ref.Namespace, t.ref.Name)
	var none T
	if a == nil {
		return shown, true
	}
	// The event may have arrived before the response.
	if shown != none && a.shownBy(shown.GetResourceVersion()) {
		t.cache.answers.drop(t.name(), a)
		return shown, true
	}
	return a.object, a.object != none
}

// Answered records the response to a write. have is the object that Latest returned. It returns err
// with a description of the write if the write must be retried. After Conflict, AlreadyExists and
// NotFound it returns nil, because the cache is stale and its next event causes a reconcile.
func (t Target[K, T]) Answered(have, got T, err error, write string) error {
	switch {
	case err == nil:
		t.Wrote(have, got)
	case apirequest.Outdated(err):
		t.Behind(have)
	default:
		return fmt.Errorf("%s: %w", write, err)
	}
	return nil
}

// Wrote records a successful write from have to object.
func (t Target[K, T]) Wrote(have, object T) {
	kept := t.cache.kind.Keep(object)
	t.cache.contests.wrote(t.name(), t.ref.In, t.key, changes(have, kept))
	t.cache.answers.add(t.name(), &answer[K, T]{key: t.key, in: t.ref.In, object: kept})
}

// Behind records that a response showed the cache to be stale at have.
func (t Target[K, T]) Behind(have T) {
	a := &answer[K, T]{key: t.key, in: t.ref.In}
	var none T
	if have != none {
		a.stale = have.GetResourceVersion()
	}
	t.cache.answers.add(t.name(), a)
	// If the event arrived before the response, no further event causes a reconcile.
	shown := t.cache.Get(t.ref.Namespace, t.ref.Name)
	current := have != none // deleted by now
	if shown != none {
		current = a.shownBy(shown.GetResourceVersion())
	}
	if current && t.cache.answers.drop(t.name(), a) {
		t.cache.controller.Enqueue(t.key)
	}
}

// MergePatch returns a merge patch of fields of an object, guarded by its version and UID. metadata are further fields of its metadata.
func MergePatch(have metav1.Object, metadata, fields map[string]any) []byte {
	guarded := map[string]any{"resourceVersion": have.GetResourceVersion(), "uid": have.GetUID()}
	maps.Copy(guarded, metadata)
	patch := map[string]any{"metadata": guarded}
	maps.Copy(patch, fields)
	body, _ := json.Marshal(patch) // cannot fail for the fields of API objects
	return body
}
