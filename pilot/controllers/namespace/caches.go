package namespace

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
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
	c := &caches{
		namespaces: informer(&corev1.Namespace{}, slimNamespace, source(listWatch(trouble, "namespaces", metav1.ListOptions{}, core.Namespaces().List, core.Namespaces().Watch))),
		configMaps: informer(&corev1.ConfigMap{}, slimConfigMap(current), source(listWatch(trouble, "configmaps", named, core.ConfigMaps("").List, core.ConfigMaps("").Watch))),
	}
	onChange(c.namespaces, func(o metav1.Object) { touched(o.GetName()) })
	onChange(c.configMaps, func(o metav1.Object) { touched(o.GetNamespace()) })
	ctx, c.cancel = context.WithCancel(ctx)
	c.ended.Go(func() { c.namespaces.RunWithContext(ctx) })
	c.ended.Go(func() { c.configMaps.RunWithContext(ctx) })
	return c
}

// synced waits until the caches hold all that there is; false means that ctx ended.
func (c *caches) synced(ctx context.Context) bool {
	return cache.WaitFor(ctx, "", c.namespaces.HasSyncedChecker(), c.configMaps.HasSyncedChecker())
}

// stop ends the watches and returns when all has ended.
func (c *caches) stop() {
	c.cancel()
	c.ended.Wait()
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
			if err == nil && options.SendInitialEvents != nil && *options.SendInitialEvents {
				trouble.Moot("list " + what) // this watch begins with a list of its own
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

func onChange(i cache.SharedIndexInformer, changed func(metav1.Object)) {
	object := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			changed(o)
		}
	}
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only for one that has ended
		AddFunc:    object,
		UpdateFunc: func(_, obj any) { object(obj) },
		DeleteFunc: object,
	})
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
		if _, ok := configMap.BinaryData[BundleKey]; ok {
			slim.BinaryData = map[string][]byte{BundleKey: nil}
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
