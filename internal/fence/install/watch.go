package install

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/apirequest"
)

// loadTime is how long API servers may take to load a change.
const loadTime = 1500 * time.Millisecond

// Watch calls changed after a policy or binding of any fence was created, changed or deleted, and again when API servers
// should have loaded the change. It returns when ctx ends. While a watch fails, changes are not reported, so the caller
// has to poll.
func Watch(ctx context.Context, client kubernetes.Interface, changed func(), log *slog.Logger) {
	events := make(chan struct{}, 1)
	event := func() {
		select {
		case events <- struct{}{}:
		default: // an event is pending
		}
	}
	const instead = "changes of the fence are detected by the next periodic test"
	trouble := apirequest.NewTrouble(log, map[string]string{"watch " + policyKind: instead, "watch " + bindingKind: instead})
	var all sync.WaitGroup
	defer all.Wait()
	for _, of := range bindingsFirst(client) {
		informer := of.informer(client, event, trouble)
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	later := time.NewTimer(0)
	later.Stop()
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			changed()
			later.Reset(loadTime)
		case <-later.C:
			changed()
		}
	}
}

// informer returns an informer that calls changed after each change of a fence's object since the first list.
func (s store) informer(client kubernetes.Interface, changed func(), trouble *apirequest.Trouble) cache.SharedIndexInformer {
	verb := "watch " + s.kind
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := s.list(ctx, options)
			if err != nil {
				trouble.Tried(verb, err) // after a success, the watch can still fail
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := s.watch(ctx, options)
			trouble.Tried(verb, err)
			return events, err
		},
	}
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, client), s.example, 0, cache.Indexers{})
	// These calls cannot fail before the informer runs.
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // trouble has reported it
	_ = i.SetTransform(func(o any) (any, error) {
		m := o.(metav1.Object)
		return &metav1.ObjectMeta{Name: m.GetName(), UID: m.GetUID(), Generation: m.GetGeneration(), Labels: m.GetLabels()}, nil
	})
	_, _ = i.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(o any) bool {
			if last, missed := o.(cache.DeletedFinalStateUnknown); missed {
				o = last.Obj
			}
			return ofAFence(o.(metav1.Object))
		},
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, initial bool) {
				if !initial {
					changed()
				}
			},
			UpdateFunc: func(before, after any) {
				if contentVersion(before) != contentVersion(after) {
					changed()
				}
			},
			DeleteFunc: func(any) { changed() },
		},
	})
	return i
}

// contentVersion changes with the content of an object, but not with its status.
func contentVersion(o any) string {
	m := o.(metav1.Object)
	return fmt.Sprint(m.GetUID(), "/", m.GetGeneration())
}
