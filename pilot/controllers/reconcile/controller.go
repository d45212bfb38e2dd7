package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/pkg/kube"
)

// ErrRunning is returned by a Run beside another one of the same Controller.
var ErrRunning = errors.New("the controller is running already")

const (
	defaultWorkers = 4
	// writeLimit bounds the wait for one write's answer, also after a stop.
	writeLimit = 5 * time.Second
	// A key whose reconciling failed is tried again after a wait that doubles between these.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
)

// Config of a Controller whose keys are of type K.
type Config[K comparable] struct {
	// Name is what errors call it, such as "ingress controller".
	Name string
	// Reconcile writes what a key needs, if it needs anything. It is called for one key at
	// a time, and for several at once. An error has it called again, with back-off.
	Reconcile func(ctx context.Context, key K) error
	// Await, when set, is called before each Reconcile, and returns when what that goes by beside the caches is up to
	// date, or ctx ends. A wait of its own has a bound.
	Await func(ctx context.Context)
	// First, when set, says which keys are looked at before the others when Run begins with caches that are
	// warm: those for which something is missing, say, before what has only to be checked.
	First func(key K) bool
	// Idle says, for the log, what is not done while a kind may not be listed, such as "no
	// status is written".
	Idle string
	// Failing, when set, is called when a key begins to fail, or fails for another reason
	// than before, by the kind of error: for an Event on the object, say.
	Failing func(key K, err error)
	// Workers is how many keys may be looked at at once; 0 means 4.
	Workers int
	// Logger receives what begins and ends to fail; nil means slog.Default().
	Logger *slog.Logger
}

// Controller keeps caches, and calls Reconcile with each key that something has changed for.
type Controller[K comparable] struct {
	config   Config[K]
	client   kube.Client
	trouble  *kube.Trouble
	instead  map[string]string // of trouble, by verb, or by a condition's name
	failures *failures[K]
	kinds    []kind[K]

	mu     sync.Mutex
	caches *caches  // nil while there are none
	queue  queue[K] // of the Run that is under way
}

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

// kind is a Cache, of whatever type its objects are.
type kind[K comparable] interface {
	// start begins to fill it; all that it starts ends with ctx, and is counted in ended.
	start(ctx context.Context, ended *sync.WaitGroup) (synced cache.DoneChecker)
	keys(each func(K))
	stopped()
}

// caches are the filling of all kinds, from one start to its stop.
type caches struct {
	synced []cache.DoneChecker
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// New starts nothing. The controller's kinds are added by Watch, before its first Warm or Run.
func New[K comparable](client kube.Client, config Config[K]) (*Controller[K], error) {
	// When Run has returned nothing may be written any more, so it waits for answers.
	finishing, err := kube.Derive(client, kube.WithFinishedWrites(writeLimit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Name, err)
	}
	config.Workers = cmp.Or(config.Workers, defaultWorkers)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	instead := map[string]string{}
	return &Controller[K]{
		config: config, client: finishing, instead: instead,
		trouble: kube.NewTrouble(config.Logger, instead), failures: newFailures[K](config.Logger),
	}, nil
}

// ValidateWorkers reports a number of workers that cannot be meant.
func ValidateWorkers(n int) error {
	if n < 0 {
		return fmt.Errorf("%d workers are less than none", n)
	}
	return nil
}

// Client is what writes go through: Run waits for the answers of all that were sent.
func (c *Controller[K]) Client() kube.Client { return c.client }

// Warm fills the caches, so that a Run later starts at once. It returns when they are filled, or
// with ctx's error; they are kept up to date until Close in either case.
func (c *Controller[K]) Warm(ctx context.Context) error {
	caches, _ := c.start(ctx)
	if !caches.filled(ctx) {
		return fmt.Errorf("%s: filling caches: %w", c.config.Name, errors.Join(context.Cause(ctx), c.Problem()))
	}
	return nil
}

// Problem is what keeps caches from being filled or up to date, nil when nothing does.
func (c *Controller[K]) Problem() error { return c.trouble.Problem() }

// Close ends what Warm started, and returns when it has ended. A closed controller may
// be warmed again.
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

// start starts the caches unless they are there, and reports whether it did. They
// outlive ctx.
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

// filled waits until the caches hold all that there is, and have told so: what comes later is a
// change. False means that ctx ended.
func (c *caches) filled(ctx context.Context) bool { return cache.WaitFor(ctx, "", c.synced...) }

// Enqueue has keys looked at, if the controller runs.
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

// EnqueueAll has the keys of all that the caches hold looked at, and others with them, if the controller runs.
func (c *Controller[K]) EnqueueAll(others ...K) {
	// Several objects have the same key: added one by one, it could be looked at in between, and again.
	all := map[K]bool{}
	keys := others[:len(others):len(others)]
	for _, key := range others {
		all[key] = true
	}
	for _, k := range c.kinds {
		k.keys(func(key K) {
			if !all[key] {
				all[key] = true
				keys = append(keys, key)
			}
		})
	}
	c.Enqueue(keys...)
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

// Run reconciles until ctx ends. It returns nil then, when nothing that it started goes on and
// no write is under way. The functions beside run from the time on when the caches are filled, and
// must return when ctx has ended.
func (c *Controller[K]) Run(ctx context.Context, beside ...func(ctx context.Context)) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, lastRetry))
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
	c.EnqueueAll() // which leaves the place in the queue to those that have one
	var ended sync.WaitGroup
	for _, f := range beside {
		ended.Go(func() { f(ctx) })
	}
	for range c.config.Workers {
		ended.Go(func() { c.work(ctx, queue) })
	}
	<-ctx.Done()
	queue.ShutDown()
	ended.Wait()
	return nil
}

// install makes a queue the one that changes go to, unless there is one; nil takes the
// present one away.
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
func (c *Controller[K]) work(ctx context.Context, queue queue[K]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		c.one(ctx, queue, key)
		queue.Done(key)
	}
}

func (c *Controller[K]) one(ctx context.Context, queue queue[K], key K) {
	if c.config.Await != nil {
		c.config.Await(ctx)
	}
	if ctx.Err() != nil {
		return // what is left in the queue is for the next leader
	}
	err := c.config.Reconcile(ctx, key)
	if ctx.Err() != nil {
		return // what fails now fails because of the stop
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
