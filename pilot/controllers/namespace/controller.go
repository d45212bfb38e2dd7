package namespace

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/pkg/kube"
)

// ErrRunning is returned by a Run beside another one of the same Controller.
var ErrRunning = errors.New("the namespace controller is running already")

// Controller keeps the CA bundle in every namespace.
type Controller struct {
	client   kube.Client
	config   Config
	excluded sets.Set[string]
	bundle   *bundle
	trouble  *kube.Trouble
	failures *failures

	mu     sync.Mutex
	caches *caches
	queue  queue // of the Run that is under way
}

type queue = workqueue.TypedRateLimitingInterface[string]

// New checks the configuration and starts nothing. The controller reads and writes
// through client alone.
func New(client kube.Client, config Config) (*Controller, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("namespace controller: %w", err)
	}
	// When Run has returned nothing may be written any more, so it waits for answers.
	finishing, err := kube.Derive(client, kube.WithFinishedWrites(writeLimit))
	if err != nil {
		return nil, fmt.Errorf("namespace controller: %w", err)
	}
	config = config.withDefaults()
	return &Controller{
		client: finishing, config: config,
		excluded: sets.New(config.Excluded...),
		bundle:   &bundle{file: config.BundleFile, log: config.Logger},
		trouble: kube.NewTrouble(config.Logger, map[string]string{
			"list namespaces": "no bundle is spread", "list configmaps": "no bundle is spread",
			"watch namespaces": "listing them every now and then", "watch configmaps": "listing them every now and then",
		}),
		failures: newFailures(config.Logger),
	}, nil
}

// Warm fills the caches, so that a Run later starts at once, and looks at the bundle,
// so that a wrong file is reported before it matters. It returns when the caches are
// filled, or with ctx's error; they are kept up to date until Close in either case.
func (c *Controller) Warm(ctx context.Context) error {
	caches, _ := c.start(ctx)
	c.bundle.refresh()
	if !caches.synced(ctx) {
		return fmt.Errorf("namespace controller: filling caches: %w", errors.Join(context.Cause(ctx), c.trouble.Problem()))
	}
	return nil
}

// Close ends what Warm started, and returns when it has ended. A closed controller may
// be warmed again.
func (c *Controller) Close() {
	c.mu.Lock()
	caches := c.caches
	c.caches = nil
	c.mu.Unlock()
	if caches != nil {
		caches.stop()
	}
}

// start starts the caches unless they are there, and reports whether it did. They
// outlive ctx.
func (c *Controller) start(ctx context.Context) (running *caches, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caches == nil {
		c.caches = startCaches(context.WithoutCancel(ctx), c.client, c.trouble, c.bundle.current, c.touched)
		started = true
	}
	return c.caches, started
}

// touched is called when something about a namespace has changed.
func (c *Controller) touched(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil {
		c.queue.Add(namespace)
	}
}

// Run keeps the bundle in every namespace until ctx ends. It returns nil then, when
// nothing that it started goes on and no write is under way. While there is no good
// bundle it waits for one.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
	defer queue.ShutDown()
	if !c.install(queue) {
		return ErrRunning
	}
	defer c.install(nil)
	caches, started := c.start(ctx)
	if started {
		defer c.Close()
	}
	c.bundle.refresh()
	if !caches.synced(ctx) {
		return nil
	}
	all := func() {
		for _, name := range caches.namespaces.GetStore().ListKeys() {
			queue.Add(name)
		}
	}
	all()
	var ended sync.WaitGroup
	ended.Go(func() { c.bundle.follow(ctx, c.config.BundleInterval, all) })
	for range c.config.Workers {
		ended.Go(func() { c.work(ctx, caches, queue) })
	}
	<-ctx.Done()
	queue.ShutDown()
	ended.Wait()
	return nil
}

// install makes a queue the one that changes go to, unless there is one; nil takes the
// present one away.
func (c *Controller) install(q queue) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q != nil && c.queue != nil {
		return false
	}
	c.queue = q
	return true
}

// work puts namespaces right until the queue is shut down.
func (c *Controller) work(ctx context.Context, caches *caches, queue queue) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		c.one(ctx, caches, queue, name)
		queue.Done(name)
	}
}

func (c *Controller) one(ctx context.Context, caches *caches, queue queue, name string) {
	err := c.settle(ctx, caches, name)
	if ctx.Err() != nil {
		return // what fails now fails because of the stop
	}
	c.failures.note(name, err)
	if err != nil {
		queue.AddRateLimited(name)
		return
	}
	queue.Forget(name)
}
