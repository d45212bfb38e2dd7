package reconcile

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names an object.
type Ref struct {
	Namespace, Name string
	// In is the UID of what the object lies in, for one that ends with that and whose
	// cache may show it later, such as a namespace: what was written into an earlier
	// namespace of this name is not believed. "" for all others.
	In types.UID
}

// Target is one object that a key writes.
type Target[K comparable, T Object] struct {
	cache *Cache[K, T]
	key   K
	ref   Ref
}

// At is the object of a name, on behalf of a key. It need not exist.
func (k *Cache[K, T]) At(key K, ref Ref) Target[K, T] { return Target[K, T]{k, key, ref} }

func (t Target[K, T]) name() types.NamespacedName {
	return types.NamespacedName{Namespace: t.ref.Namespace, Name: t.ref.Name}
}

// Latest returns the object as the cache shows it or, until it shows that, as it was written;
// nil when there is none. It is not known while an answer has told of more than the cache
// shows: then there is nothing to do, and the key is looked at again when it does, or when it
// takes half a minute. Nor is it known during a pause, which comes when another writer changes the object
// back as often as it is written. The object is shared: who changes it makes a copy before.
func (t Target[K, T]) Latest() (object T, known bool) {
	if t.cache.contests.pauses(t.name()) {
		return object, false
	}
	// Asked before the cache is: what has been seen by now, the cache shows.
	a, shown := t.cache.answers.of(t.name(), t.ref.In), t.cache.Get(t.ref.Namespace, t.ref.Name)
	var none T
	if a == nil {
		return shown, true
	}
	// The cache may have shown it before the answer came.
	if shown != none && a.shownBy(shown.GetResourceVersion()) {
		t.cache.answers.drop(t.name(), a)
		return shown, true
	}
	return a.object, a.object != none
}

// Answered takes the answer to a write of the object that Latest showed as have, nil for none,
// and returns the error if there is something to try again. By a conflict, and where the object exists
// against expectation or does not, the cache is behind: what it shows next is right.
func (t Target[K, T]) Answered(have, got T, err error) error {
	switch {
	case err == nil:
		t.Wrote(have, got)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		t.Behind(have)
	default:
		return err
	}
	return nil
}

// Wrote takes the object as the answer to a write shows it, and as Latest showed it before that.
func (t Target[K, T]) Wrote(have, object T) {
	kept := t.cache.kind.Keep(object)
	t.cache.contests.changed(t.cache.kind.Name, t.name(), t.key, digest(t.ref.In, have, kept))
	t.cache.answers.add(t.name(), &answer[K, T]{key: t.key, in: t.ref.In, object: kept})
}

// Behind notes that an answer told of more than the cache shows, which is have, nil for none.
func (t Target[K, T]) Behind(have T) {
	a := &answer[K, T]{key: t.key, in: t.ref.In}
	var none T
	if have != none {
		a.stale = have.GetResourceVersion()
	}
	t.cache.answers.add(t.name(), a)
	// The cache may have shown it before the answer came: then nothing more comes to look at the key for.
	shown := t.cache.Get(t.ref.Namespace, t.ref.Name)
	more := have != none // and gone by now
	if shown != none {
		more = a.shownBy(shown.GetResourceVersion())
	}
	if more && t.cache.answers.drop(t.name(), a) {
		t.cache.controller.Enqueue(t.key)
	}
}
