package controllerruntime

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// termCache is the shared cache as seen by a term. It removes the handlers of the term.
type termCache struct {
	cache.Cache
	ctx  context.Context // of the term
	all  *indexes
	mine map[index]bool // of this term

	mu      sync.Mutex
	removes []func()
	closed  bool
}

func (c *termCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	return c.wrap(c.Cache.GetInformer(ctx, obj, opts...))
}

func (c *termCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	return c.wrap(c.Cache.GetInformerForKind(ctx, gvk, opts...))
}

func (c *termCache) wrap(i cache.Informer, err error) (cache.Informer, error) {
	if err != nil {
		return nil, err
	}
	return termInformer{i, c}, nil
}

// RemoveInformer does nothing, because other terms and the process use the informer.
func (*termCache) RemoveInformer(context.Context, client.Object) error { return nil }

// syncPoll is the interval at which a source of controller-runtime polls whether its handler has all objects.
const syncPoll = 100 * time.Millisecond

// add adds a handler. If the cache is filled, it waits briefly until the handler has all objects, so that the source does not wait
// for its poll.
func (c *termCache) add(i cache.Informer, handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := c.register(i, handler, options)
	if err != nil || !i.HasSynced() {
		return registration, err
	}
	select {
	case <-registration.HasSyncedChecker().Done():
	case <-c.ctx.Done():
	case <-time.After(syncPoll):
	}
	return registration, nil
}

// register returns an error after the end of the term: a source can add its handler after its controller has returned.
func (c *termCache) register(i cache.Informer, handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errTermOver
	}
	registration, err := i.AddEventHandlerWithOptions(handler, options)
	if err != nil {
		return nil, err
	}
	// RemoveEventHandler fails if the informer has ended. Then there is nothing to remove.
	c.removes = append(c.removes, func() { _ = i.RemoveEventHandler(registration) })
	return registration, nil
}

func (c *termCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, remove := range c.removes {
		remove()
	}
	c.removes = nil
}

// termInformer is a shared informer as seen by a term.
type termInformer struct {
	cache.Informer
	in *termCache
}

func (i termInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.in.add(i.Informer, h, toolscache.HandlerOptions{})
}

func (i termInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.in.add(i.Informer, h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

func (i termInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.in.add(i.Informer, h, options)
}

// index is a field index of a kind.
type index struct {
	kind  reflect.Type
	gvk   schema.GroupVersionKind // of kinds without a Go type
	field string
}

// indexes are the indexes that terms have added to the shared cache. An informer cannot remove an index.
type indexes struct {
	mu    sync.Mutex
	added map[index]bool
}

// IndexField adds an index, unless an earlier term has added it.
func (c *termCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	i := index{reflect.TypeOf(obj), obj.GetObjectKind().GroupVersionKind(), field}
	if c.mine[i] {
		return fmt.Errorf("index field %q of %T: the index exists. Remove one of the two calls of IndexField", field, obj)
	}
	if !c.all.added[i] {
		if err := c.Cache.IndexField(ctx, obj, field, extract); err != nil {
			return fmt.Errorf("index field %q of %T: %w", field, obj, err)
		}
		c.all.added[i] = true
	}
	c.mine[i] = true
	return nil
}
