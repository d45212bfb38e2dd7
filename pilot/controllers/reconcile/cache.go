package reconcile

import (
	"context"
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

	"incumbent.dev/incumbent/pkg/kube"
)

// Object is what a cache holds: a pointer to an API object.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Kind is a kind of objects that a controller keeps a cache of.
type Kind[K comparable, T Object] struct {
	// Name is what the API server calls it, for the log: the plural, such as "ingresses".
	Name string
	// From is where its objects are read.
	From Source
	// Keep makes of an object what is kept of it, which is all that its changes are judged
	// by; Meta helps. It gets one of its own. nil keeps all but managedFields. Of what it has returned
	// it must keep all: where a watch begins with a list, an informer gives it that once more.
	Keep func(T) T
	// Keys are the keys to look at when an object is there at first, new, changed or gone; of
	// a changed one, those of before, too. nil: it is only read.
	Keys func(T) []K
	// Indexes are further names for objects, for Cache.By: each by the name of the index.
	Indexes map[string]func(T) []string
}

// missing begins the name of the condition of a kind that the API server does not know.
const missing = "missing "

// Cache holds the objects of one kind.
type Cache[K comparable, T Object] struct {
	kind       Kind[K, T]
	controller *Controller[K]
	answers    *answers[K, T]
	contests   *contests[K]
	informer   atomic.Pointer[informer]
}

type informer struct{ cache.SharedIndexInformer }

// Watch adds a kind to a controller that was not warmed or run yet.
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
	c.instead["watch "+kind.Name] = "listing them every now and then"
	c.instead[missing+kind.Name] = c.config.Idle
	again := func(key K) { c.Enqueue(key) }
	k := &Cache[K, T]{kind: kind, controller: c, answers: newAnswers[K, T](again), contests: newContests(c.config.Logger, again)}
	c.kinds = append(c.kinds, k)
	return k
}

// Meta is what tells an object and its life from others: all of its metadata that controllers
// need as a rule. Labels, annotations and more are added by who looks at them.
func Meta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// Get returns an object as the cache shows it, nil when it shows none. It is shared: who
// changes it makes a copy before.
func (k *Cache[K, T]) Get(namespace, name string) T {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, _, _ := k.store().GetByKey(key) // the error is never set
	object, _ := found.(T)
	return object
}

// List returns all objects that the cache shows, in no order.
func (k *Cache[K, T]) List() []T { return typed[T](k.store().List()) }

// By returns the objects that an index has under a value, in no order.
func (k *Cache[K, T]) By(index, value string) []T {
	found, _ := k.store().ByIndex(index, value) // fails for an index that there is not
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

// store is empty before the first start.
func (k *Cache[K, T]) store() cache.Indexer {
	if informer := k.informer.Load(); informer != nil {
		return informer.GetIndexer()
	}
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, k.indexers())
}

func (k *Cache[K, T]) start(ctx context.Context, ended *sync.WaitGroup) cache.DoneChecker {
	example, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object)
	// A fake clientset has no watches that begin with a list, and says so.
	source := cache.ToListWatcherWithWatchListSemantics(k.kind.From.listWatch(k.tried, k.watched), k.controller.client.Kube())
	i := cache.NewSharedIndexInformer(source, example, 0, k.indexers())
	// None of these fails before the informer runs.
	_ = i.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			return k.kind.Keep(o), nil
		}
		return obj, nil
	})
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // tried reports
	handled, _ := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { k.shown(nil, obj) },
		UpdateFunc: func(before, obj any) {
			if alike(before, obj) {
				before, obj = nil, unchanged{obj}
			}
			k.shown(before, obj)
		},
		DeleteFunc: func(obj any) { k.shown(nil, obj) },
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
}

func (k *Cache[K, T]) keys(each func(K)) {
	for _, o := range k.List() {
		for _, key := range k.kind.Keys(o) {
			each(key)
		}
	}
}

// unchanged is an object of which nothing has changed that is kept. That must not cause a try:
// it would go past the back-off of a key that fails.
type unchanged struct{ object any }

// shown is called with each object that the cache shows anew, or shows no more.
func (k *Cache[K, T]) shown(before, now any) {
	same, isSame := now.(unchanged)
	if isSame {
		now = same.object
	}
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
	if isSame {
		return
	}
	keys := k.kind.Keys(o)
	if old, ok := before.(T); ok {
		keys = slices.Concat(keys, k.kind.Keys(old))
	}
	// Once each: a worker may have taken the first of two before the second comes.
	k.controller.Enqueue(sets.New(keys...).UnsortedList()...)
}

// alike reports whether two versions of an object are the same, their versions aside.
func alike(before, after any) bool {
	return equality.Semantic.DeepEqual(versionless(before), versionless(after))
}

func versionless(obj any) any {
	from := reflect.ValueOf(obj)
	if from.Kind() != reflect.Pointer || from.IsNil() {
		return obj
	}
	slim := reflect.New(from.Type().Elem())
	slim.Elem().Set(from.Elem()) // metadata is part of it, and copied
	if o, ok := slim.Interface().(metav1.Object); ok {
		o.SetResourceVersion("")
	}
	return slim.Interface()
}

// tried takes the outcome of one request.
func (k *Cache[K, T]) tried(verb string, err error) {
	name, trouble := verb+" "+k.kind.Name, k.controller.trouble
	if apierrors.IsNotFound(err) {
		trouble.Moot(name)
		trouble.Tried("", nil) // it did answer
		trouble.Observe(k.missing(), fmt.Errorf("%s: the API server does not know the kind: its definition is missing", k.kind.Name))
		return
	}
	if err == nil {
		trouble.Observe(k.missing(), nil)
	}
	trouble.Tried(name, err)
}

// missing is the condition that the API server does not know the kind.
func (k *Cache[K, T]) missing() kube.Condition {
	return kube.Condition{
		Name:   missing + k.kind.Name,
		Begins: "the API server does not know a kind, waiting for its definition",
		Ends:   "the API server knows the kind now", About: []any{"kind", k.kind.Name},
	}
}

// watched is called when a watch was let in: it begins with a list of its own, or came after one.
func (k *Cache[K, T]) watched() { k.controller.trouble.Moot("list " + k.kind.Name) }
