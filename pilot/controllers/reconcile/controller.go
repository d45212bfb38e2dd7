package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pkg/kube"
)

// ErrRunning is returned by Run if the controller is already running.
var ErrRunning = errors.New("controller is already running")

const (
	// workers is the number of concurrent reconciles.
	workers = 4
	// writeLimit bounds the wait for the response to a write, also after a stop.
	writeLimit = 5 * time.Second
	// The retry delay of a failed key doubles from firstRetry to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Config configures a Controller with keys of type K.
type Config[K comparable] struct {
	// Name appears in errors, for example "ingress controller".
	Name string
	// Reconcile makes the writes for a key. It is called concurrently for different keys, but not
	// for the same key. After an error it is called again with back-off.
	Reconcile func(ctx context.Context, key K) error
	// Await blocks until Reconcile's other inputs (besides the caches) are up to date or ctx is
	// done. Its wait is bounded. Optional.
	Await func(ctx context.Context)
	// Namespace returns the namespace of a key. Namespaces take turns, and each has at most half of the
	// workers. If nil, objects have the order of adding.
	Namespace func(key K) string
	// First reports whether a key is reconciled before the others of its namespace when Run starts,
	// for example because an object is missing. Optional.
	First func(key K) bool
	// Background runs with the workers, after the caches are filled. It must return when ctx is done. Optional.
	Background func(ctx context.Context)
	// Idle describes, for the log, the effect of a kind that cannot be listed, for example "no
	// status is written".
	Idle string
	// Failing is called when a key starts to fail or fails for a new reason, or when another writer
	// keeps reverting an object of the key, for example to record an Event. Optional.
	Failing func(key K, err error)
	// Logger logs failures and their ends. Default: slog.Default().
	Logger *slog.Logger
}

// Controller keeps caches and calls Reconcile for each key that is affected by a change.
type Controller[K comparable] struct {
	config   Config[K]
	client   kube.Client
	trouble  *apirequest.Trouble
	instead  map[string]string // passed to trouble: effect by request or condition name
	failures *failures[K]
	kinds    []kind[K]

	mu     sync.Mutex
	caches *caches  // nil if not started
	queue  queue[K] // of the active Run, or nil
}

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

// kind is a Cache for any object type.
type kind[K comparable] interface {
	// start starts filling the cache. Everything that it starts ends with ctx and is tracked in ended.
	start(ctx context.Context, ended *sync.WaitGroup) (synced cache.DoneChecker)
	keys(each func(K))
	stopped()
}

// caches holds the running informers of all kinds.
type caches struct {
	synced []cache.DoneChecker
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// New returns a Controller and starts nothing. Watch adds its kinds.
func New[K comparable](client kube.Client, config Config[K]) (*Controller[K], error) {
	// No write may arrive after Run has returned, so Run waits for the responses.
	finishing, err := kube.Derive(client, kube.WithFinishedWrites(writeLimit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Name, err)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	instead := map[string]string{}
	return &Controller[K]{
		config: config, client: finishing, instead: instead,
		trouble: apirequest.NewTrouble(config.Logger, instead), failures: newFailures[K](config.Logger),
	}, nil
}

// Client returns the client for writes. Run waits for the responses to its writes.
func (c *Controller[K]) Client() kube.Client { return c.client }

// Warm fills the caches, so that a later Run starts without delay. It returns when the caches are
// filled, or returns the error of ctx. In both cases the caches stay up to date until Close.
func (c *Controller[K]) Warm(ctx context.Context) error {
	caches, _ := c.start(ctx)
	if !caches.filled(ctx) {
		return fmt.Errorf("%s: fill caches: %w", c.config.Name, errors.Join(context.Cause(ctx), c.Problem()))
	}
	return nil
}

// Problem returns the error that keeps the caches from being filled or up to date, or nil.
func (c *Controller[K]) Problem() error { return c.trouble.Problem() }

// Close stops the caches that Warm started and waits until they have ended. Warm can be called
// again afterwards.
func (c *Controller[K]) Close() {
	c.mu.Lock()
	caches := c.caches
	c.caches = nil
	c.mu.Unlock()
	if caches == nil {
		return
	}
	caches.cancel()
	caches.ended.Wait()
	for _, k := range c.kinds {
		k.stopped()
	}
}

// start starts the caches unless they are running, and reports whether it did. The caches outlive
// ctx.
func (c *Controller[K]) start(ctx context.Context) (running *caches, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caches != nil {
		return c.caches, false
	}
	c.caches = &caches{}
	ctx, c.caches.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, k := range c.kinds {
		c.caches.synced = append(c.caches.synced, k.start(ctx, &c.caches.ended))
	}
	return c.caches, true
}

// filled waits until the caches are filled and their handlers have run for all objects. It returns
// false if ctx is done.
func (c *caches) filled(ctx context.Context) bool { return cache.WaitFor(ctx, "", c.synced...) }

// Enqueue adds keys to the queue if the controller is running.
func (c *Controller[K]) Enqueue(keys ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil {
		return
	}
	for _, key := range keys {
		c.queue.Add(key)
	}
}

// EnqueueAll adds the keys of all cached objects and other keys to the queue if the controller is
// running.
func (c *Controller[K]) EnqueueAll(others ...K) {
	// Objects can share a key. Without removing duplicates, a worker could take the key in between and
	// reconcile it twice.
	keys := sets.New(others...)
	for _, k := range c.kinds {
		k.keys(func(key K) { keys.Insert(key) })
	}
	c.Enqueue(keys.UnsortedList()...)
}

func (c *Controller[K]) enqueueFirst() {
	if c.config.First == nil {
		return
	}
	for _, k := range c.kinds {
		k.keys(func(key K) {
			if c.config.First(key) {
				c.Enqueue(key)
			}
		})
	}
}

// Run reconciles until ctx is done. It returns nil after everything it started and all its writes
// have ended.
func (c *Controller[K]) Run(ctx context.Context) error {
	queue, done := c.newQueue()
	defer queue.ShutDown()
	if !c.install(queue) {
		return ErrRunning
	}
	defer c.install(nil)
	caches, started := c.start(ctx)
	if started {
		defer c.Close()
	}
	if !caches.filled(ctx) {
		return nil
	}
	c.enqueueFirst()
	c.EnqueueAll() // keys that are already queued keep their place
	var ended sync.WaitGroup
	if f := c.config.Background; f != nil {
		ended.Go(func() { f(ctx) })
	}
	for range workers {
		ended.Go(func() { c.work(ctx, queue, done) })
	}
	<-ctx.Done()
	queue.ShutDown()
	ended.Wait()
	return nil
}

// newQueue returns a queue whose namespaces take turns, and a function that a worker calls before Done.
func (c *Controller[K]) newQueue() (q queue[K], done func(K)) {
	namespace, most := c.config.Namespace, workers/2
	if namespace == nil {
		namespace, most = func(K) string { return "" }, workers
	}
	turns := newFair(namespace, most)
	order := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: turns})
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[K]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Queue: order}),
		}), turns.done
}

// install sets the queue and returns false if another one is set. A nil queue removes the current
// one.
func (c *Controller[K]) install(q queue[K]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q != nil && c.queue != nil {
		return false
	}
	c.queue = q
	return true
}

// work reconciles keys until the queue is shut down.
func (c *Controller[K]) work(ctx context.Context, queue queue[K], done func(K)) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		c.reconcile(ctx, queue, key)
		done(key)
		queue.Done(key)
	}
}

func (c *Controller[K]) reconcile(ctx context.Context, queue queue[K], key K) {
	if c.config.Await != nil {
		c.config.Await(ctx)
	}
	if ctx.Err() != nil {
		return // the next leader reconciles the remaining keys
	}
	err := c.config.Reconcile(ctx, key)
	if ctx.Err() != nil {
		return // the stop caused the error
	}
	if c.failures.note(key, err) && c.config.Failing != nil {
		c.config.Failing(key, err)
	}
	if err != nil {
		queue.AddRateLimited(key)
		return
	}
	queue.Forget(key)
}
