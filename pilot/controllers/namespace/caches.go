package namespace

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/pkg/kube"
)

// caches are what a controller knows of the cluster, kept by two watches.
type caches struct {
	namespaces, configMaps cache.SharedIndexInformer
	unseen                 *unseen
	slim                   cache.TransformFunc                       // of ConfigMaps
	told                   [2]cache.ResourceEventHandlerRegistration // what hears of changes
	cancel                 context.CancelFunc
	ended                  sync.WaitGroup
}

// startCaches starts to fill them. touched is called with the namespace of each change.
// current is the bundle in force: what is equal to it need not be stored twice.
func startCaches(ctx context.Context, client kube.Client, trouble *kube.Trouble, current func() string, touched func(namespace string)) *caches {
	core := client.Kube().CoreV1()
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + ConfigMapName}
	// A fake clientset has no watches that begin with a list, and says so.
	source := func(lw *cache.ListWatch) cache.ListerWatcher {
		return cache.ToListWatcherWithWatchListSemantics(lw, client.Kube())
	}
	slim := slimConfigMap(current)
	c := &caches{
		namespaces: informer(&corev1.Namespace{}, slimNamespace, source(listWatch(trouble, "namespaces", metav1.ListOptions{}, core.Namespaces().List, core.Namespaces().Watch))),
		configMaps: informer(&corev1.ConfigMap{}, slim, source(listWatch(trouble, "configmaps", named, core.ConfigMaps("").List, core.ConfigMaps("").Watch))),
		unseen:     newUnseen(touched), slim: slim,
	}
	c.told[0] = onChange(c.namespaces, func(o metav1.Object, changed bool) {
		if changed {
			touched(o.GetName())
		}
	})
	c.told[1] = onChange(c.configMaps, func(o metav1.Object, changed bool) {
		if c.unseen.seen(o.GetNamespace(), o.GetResourceVersion()) || changed {
			touched(o.GetNamespace())
		}
	})
	ctx, c.cancel = context.WithCancel(ctx)
	c.ended.Go(func() { c.namespaces.RunWithContext(ctx) })
	c.ended.Go(func() { c.configMaps.RunWithContext(ctx) })
	return c
}

// synced waits until the caches hold all that there is, and have told so: what comes later is a
// change. False means that ctx ended.
func (c *caches) synced(ctx context.Context) bool {
	return cache.WaitFor(ctx, "", c.told[0].HasSyncedChecker(), c.told[1].HasSyncedChecker())
}

// stop ends the watches and returns when all has ended.
func (c *caches) stop() {
	c.cancel()
	c.ended.Wait()
	c.unseen.clear()
}

// latest returns a namespace's ConfigMap as the cache shows it or, until it shows that, as it
// was written; nil when there is none. It is not known while an answer has told of more than
// the cache shows.
func (c *caches) latest(namespace *corev1.Namespace) (configMap *corev1.ConfigMap, known bool) {
	// Asked before the cache is: what has been seen by now, the cache shows.
	if answer := c.unseen.of(namespace.Name, namespace.UID); answer != nil {
		return answer.object, answer.object != nil
	}
	return c.configMap(namespace.Name), true
}

// wrote takes a ConfigMap as the answer to a write shows it.
func (c *caches) wrote(namespace *corev1.Namespace, configMap *corev1.ConfigMap) {
	slim, _ := c.slim(configMap) // the error is never set
	configMap, _ = slim.(*corev1.ConfigMap)
	c.unseen.add(namespace.Name, &answer{in: namespace.UID, object: configMap})
}

// behind notes that an answer told of more than the cache shows, which is a version, "" for none.
func (c *caches) behind(namespace *corev1.Namespace, version string) {
	c.unseen.add(namespace.Name, &answer{in: namespace.UID, stale: version})
}

// namespace returns one, nil when it does not exist.
func (c *caches) namespace(name string) *corev1.Namespace {
	obj, _, _ := c.namespaces.GetStore().GetByKey(name) // the error is never set
	namespace, _ := obj.(*corev1.Namespace)
	return namespace
}

// configMap returns that of a namespace, nil when it does not exist.
func (c *caches) configMap(namespace string) *corev1.ConfigMap {
	obj, _, _ := c.configMaps.GetStore().GetByKey(namespace + "/" + ConfigMapName)
	configMap, _ := obj.(*corev1.ConfigMap)
	return configMap
}

func informer(kind runtime.Object, slim cache.TransformFunc, source cache.ListerWatcher) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(source, kind, 0, cache.Indexers{})
	// Neither fails before the informer runs.
	_ = i.SetTransform(slim)
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // listWatch reports
	return i
}

// listWatch lists and watches with these options, and reports how that goes.
func listWatch[L runtime.Object](
	trouble *kube.Trouble, what string, with metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = with.FieldSelector
			all, err := list(ctx, options)
			trouble.Tried("list "+what, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = with.FieldSelector
			w, err := follow(ctx, options)
			trouble.Tried("watch "+what, err)
			if err == nil {
				trouble.Moot("list " + what) // this watch begins with a list of its own, or came after one
			}
			return w, interruptible(err)
		},
	}
}

// interruptible hides what client-go's reflector would wait for by itself, for up to
// half a minute and deaf to the end of its context. What it does not know, it returns
// with; then it waits as long, but listens.
func interruptible(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}

// onChange calls shown with each object that the cache shows anew, or shows no more, and whether
// anything of it has changed that the controller looks at. What has not must not cause a try: it
// would go past the back-off of a namespace whose writes fail.
func onChange(i cache.SharedIndexInformer, shown func(o metav1.Object, changed bool)) cache.ResourceEventHandlerRegistration {
	one := func(obj any, changed bool) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			shown(o, changed)
		}
	}
	registered, _ := i.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only for one that has ended
		AddFunc:    func(obj any) { one(obj, true) },
		UpdateFunc: func(before, obj any) { one(obj, !alike(before, obj)) },
		DeleteFunc: func(obj any) { one(obj, true) },
	})
	return registered
}

// alike reports whether two versions of an object are the same to the controller.
func alike(before, after any) bool {
	versionless := func(obj any) any {
		switch o := obj.(type) {
		case *corev1.Namespace:
			slim := *o
			slim.ResourceVersion = ""
			return slim
		case *corev1.ConfigMap:
			slim := *o
			slim.ResourceVersion = ""
			return slim
		}
		return obj
	}
	return equality.Semantic.DeepEqual(versionless(before), versionless(after))
}

// slimNamespace keeps what the controller looks at.
func slimNamespace(obj any) (any, error) {
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	return &corev1.Namespace{ObjectMeta: slimMeta(namespace.ObjectMeta), Status: corev1.NamespaceStatus{Phase: namespace.Status.Phase}}, nil
}

// slimConfigMap keeps what the controller looks at, and a bundle that is the one in
// force as that very string.
func slimConfigMap(current func() string) cache.TransformFunc {
	return func(obj any) (any, error) {
		configMap, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj, nil
		}
		slim := &corev1.ConfigMap{ObjectMeta: slimMeta(configMap.ObjectMeta), Immutable: configMap.Immutable}
		if value, ok := configMap.Data[BundleKey]; ok {
			if in := current(); in == value {
				value = in
			}
			slim.Data = map[string]string{BundleKey: value}
		}
		return slim, nil
	}
}

func slimMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}
