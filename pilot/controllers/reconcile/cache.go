package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"go.uber.org/atomic"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Object is a pointer to an API object.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Kind describes the objects of one cache.
type Kind[K comparable, T Object] struct {
	// Name is the plural resource name, such as "ingresses". It appears in the log.
	Name string
	// From lists and watches the objects.
	From Source
	// Keep returns the part of an object that the cache stores. Changes of other fields cause no
	// reconcile. It may modify its argument, and must be idempotent. If nil, all fields except
	// managedFields are kept.
	Keep func(T) T
	// Keys returns the keys to reconcile when the object is added, changed or deleted. After a
	// change, the keys of the old and the new object are reconciled. If nil, changes cause no
	// reconcile.
	Keys func(T) []K
	// Indexes maps the name of an index to the function that returns the index values of an object.
	Indexes map[string]func(T) []string
	// Optional makes an API server that does not serve the kind no problem: the cache is then empty and counts as filled. All keys are
	// reconciled when that changes.
	Optional bool
}

// Cache holds the objects of one kind.
type Cache[K comparable, T Object] struct {
	kind       Kind[K, T]
	controller *Controller[K]
	answers    *answers[K, T]
	contests   *contests[K]
	derived    []*sync.Map // values of Derive, by the key of the informer
	informer   atomic.Pointer[informer]
	served     atomic.Pointer[bool] // of an optional kind; nil before the first answer
}

type informer struct{ cache.SharedIndexInformer }

// Watch adds a kind to a controller. It must be called before the first Warm or Run.
func Watch[K comparable, T Object](c *Controller[K], kind Kind[K, T]) *Cache[K, T] {
	if kind.Keep == nil {
		kind.Keep = func(o T) T {
			o.SetManagedFields(nil)
			return o
		}
	}
	if kind.Keys == nil {
		kind.Keys = func(T) []K { return nil }
	}
	c.instead["list "+kind.Name] = c.config.Idle
	c.instead["watch "+kind.Name] = "list periodically"
	retry := func(key K) { c.Enqueue(key) }
	k := &Cache[K, T]{kind: kind, controller: c, answers: newAnswers[K, T](retry)}
	k.contests = newContests(k.contested, retry)
	c.kinds = append(c.kinds, k)
	return k
}

// contested reports an object that another writer keeps reverting.
func (k *Cache[K, T]) contested(key K, name types.NamespacedName) {
	const text = "another writer keeps reverting an object; repairing it less often. Check for a second installation that manages it."
	config := k.controller.config
	config.Logger.Warn(text, "kind", k.kind.Name, "object", name.String())
	if config.Failing != nil {
		config.Failing(key, fmt.Errorf("%s %s: %s", k.kind.Name, name, text)) //nolint:revive // sentences, for an Event
	}
}

// Meta returns the metadata that most controllers need: name, UID, version and deletion time. A
// Keep function that needs labels or annotations adds them.
func Meta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// Get returns an object of the cache, or nil. Callers must not modify it.
func (k *Cache[K, T]) Get(namespace, name string) T {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, _, _ := k.store().GetByKey(key) // always returns a nil error
	object, _ := found.(T)
	return object
}

// List returns all objects of the cache, unordered.
func (k *Cache[K, T]) List() []T { return typed[T](k.store().List()) }

// By returns the objects with this value in an index, unordered.
func (k *Cache[K, T]) By(index, value string) []T {
	found, _ := k.store().ByIndex(index, value) // returns an error if the index does not exist
	return typed[T](found)
}

func typed[T Object](objects []any) []T {
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		if object, ok := o.(T); ok {
			all = append(all, object)
		}
	}
	return all
}

// store returns the objects of the informer. It is empty before the first start.
func (k *Cache[K, T]) store() cache.Indexer {
	if informer := k.informer.Load(); informer != nil {
		return informer.GetIndexer()
	}
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, k.indexers())
}

func (k *Cache[K, T]) start(ctx context.Context, ended *sync.WaitGroup) cache.DoneChecker {
	example, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object)
	// A fake clientset reports that it does not support watch-list.
	source := cache.ToListWatcherWithWatchListSemantics(k.kind.From.listWatch(k.tried, k.watched, k.kind.Optional), k.controller.client.Kube())
	i := cache.NewSharedIndexInformer(source, example, 0, k.indexers())
	// These return no error before the informer runs.
	_ = i.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			return k.kind.Keep(o), nil
		}
		return obj, nil
	})
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // tried reports
	handled, _ := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.shown(nil, obj) },
		UpdateFunc: k.shown,
		DeleteFunc: func(obj any) {
			k.gone(obj)
			k.shown(nil, obj)
		},
	})
	k.informer.Store(&informer{i})
	ended.Go(func() { i.RunWithContext(ctx) })
	return handled.HasSyncedChecker()
}

func (k *Cache[K, T]) indexers() cache.Indexers {
	all := cache.Indexers{}
	for name, values := range k.kind.Indexes {
		all[name] = func(obj any) ([]string, error) {
			if o, ok := obj.(T); ok {
				return values(o), nil
			}
			return nil, nil
		}
	}
	return all
}

func (k *Cache[K, T]) stopped() {
	k.answers.clear()
	k.contests.clear()
	for _, values := range k.derived {
		values.Clear()
	}
}

func (k *Cache[K, T]) keys(each func(K)) {
	for _, o := range k.List() {
		for _, key := range k.kind.Keys(o) {
			each(key)
		}
	}
}

// shown handles one event of the informer.
func (k *Cache[K, T]) shown(before, now any) {
	if gone, ok := now.(cache.DeletedFinalStateUnknown); ok {
		now = gone.Obj
	}
	o, ok := now.(T)
	if !ok {
		return
	}
	if a := k.answers.seen(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetResourceVersion()); a != nil {
		k.controller.Enqueue(a.key)
	}
	keys := k.kind.Keys(o)
	if old, ok := before.(T); ok {
		// Otherwise a change of dropped fields would bypass the back-off of a failing key.
		if equalContent(old, o) {
			return
		}
		keys = slices.Concat(keys, k.kind.Keys(old))
	}
	// Without duplicates: a worker could take the first before the second is added.
	k.controller.Enqueue(sets.New(keys...).UnsortedList()...)
}

// equalContent reports whether two objects differ at most in resourceVersion.
func equalContent[T Object](before, after T) bool {
	same, ok := before.DeepCopyObject().(T)
	if !ok {
		return false
	}
	same.SetResourceVersion(after.GetResourceVersion())
	return equality.Semantic.DeepEqual(same, after)
}

// tried records the result of one list or watch request. A kind that the API server does not serve is one problem of both.
func (k *Cache[K, T]) tried(verb string, err error) {
	trouble := k.controller.trouble
	discover := "discover " + k.kind.Name
	missing := apierrors.IsNotFound(err)
	if k.kind.Optional && (err == nil || missing) {
		k.setServed(!missing)
	}
	switch {
	case missing && !k.kind.Optional:
		trouble.Tried(discover, fmt.Errorf("%w: %w", errMissing, err))
	case missing, err == nil:
		trouble.Tried(discover, nil)
	}
	if missing {
		trouble.Moot(verb + " " + k.kind.Name)
		return
	}
	trouble.Tried(verb+" "+k.kind.Name, err)
}

var errMissing = errors.New("resource kind is not served by the API server; waiting for its CustomResourceDefinition")

// setServed records whether the API server serves an optional kind.
func (k *Cache[K, T]) setServed(served bool) {
	before := k.served.Swap(&served)
	if before != nil && *before == served {
		return
	}
	log := k.controller.config.Logger
	switch {
	case !served:
		log.Info("resource kind is not served by the API server; its objects count as missing", "kind", k.kind.Name)
	case before != nil:
		log.Info("resource kind is served now", "kind", k.kind.Name)
	}
	k.controller.EnqueueAll()
}

// Served reports whether the API server is known to serve an optional kind.
func (k *Cache[K, T]) Served() bool {
	served := k.served.Load()
	return served != nil && *served
}

// watched is called when a watch request was accepted. A list is no longer needed then.
func (k *Cache[K, T]) watched() { k.controller.trouble.Moot("list " + k.kind.Name) }
