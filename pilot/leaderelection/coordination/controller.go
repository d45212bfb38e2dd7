package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1informers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Config configures a Controller.
type Config struct {
	// Client sends all requests. An API server adds a deprecation warning to each response about LeaseCandidates, so
	// the client should drop warnings about coordination.k8s.io/v1beta1.
	Client kubernetes.Interface
	// Namespace is the namespace of the locks.
	Namespace string
	// Strategies are the strategies of this coordinator. The default is Own.
	// Elections whose candidates request another strategy are not changed.
	Strategies Registry
	// Situation returns the input of the strategies. If it returns false, the situation is unknown and no candidate is named.
	// Call Refresh if it changed.
	Situation func() (Situation, bool)
	// EventRecorder records Kubernetes Events about the locks. Optional.
	EventRecorder k8sresourcelock.EventRecorder
	// Logger logs each choice and each new problem. The default is slog.Default.
	Logger *slog.Logger
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("Client is required"))
	}
	for _, problem := range validation.IsDNS1123Label(c.Namespace) {
		errs = append(errs, fmt.Errorf("namespace %q: %s", c.Namespace, problem))
	}
	if c.Situation == nil {
		errs = append(errs, errors.New("Situation is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

// Controller chooses the leaders of the elections of a namespace. Run it as the leader of an election of its own. If two
// run at the same time, each write is still guarded by the version on which it was decided.
//
// All state comes from the objects, except for the time since which they are unchanged. A Controller records this time for locks
// from Warm on, also between its terms. For candidates it starts again in each term.
//
// If the API server does not serve LeaseCandidates, there are no candidates, and the Controller changes no lock.
type Controller struct {
	cfg        Config
	leases     cache.SharedIndexInformer
	candidates cache.SharedIndexInformer
	seen       *sightings
	stop       context.CancelFunc // nil before Warm
	informers  sync.WaitGroup

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[string] // nil between terms
}

// New validates the configuration and starts nothing.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Strategies == nil {
		cfg.Strategies = Own()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &Controller{cfg: cfg, seen: newSightings()}
	c.leases = coordinationv1informers.NewLeaseInformer(cfg.Client, cfg.Namespace, 0, cache.Indexers{})
	c.candidates = cache.NewSharedIndexInformer(c.candidateSource(), &coordinationv1beta1.LeaseCandidate{}, 0,
		cache.Indexers{byElection: candidateElection})
	if err := c.candidates.SetWatchErrorHandlerWithContext(ignoreUnserved); err != nil {
		return nil, err
	}
	for _, informer := range []cache.SharedIndexInformer{c.leases, c.candidates} {
		if err := informer.SetTransform(dropManagedFields); err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(c.eventHandler()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// warmTimeout is the time after which Warm logs that it waits for LeaseCandidates.
const warmTimeout = 10 * time.Second

// Warm starts the watches. It returns when the locks are known, and the candidates or the fact that LeaseCandidates are not served.
// If the process may not list them, Warm blocks until ctx ends, so that another process can coordinate.
func (c *Controller) Warm(ctx context.Context) error {
	if c.stop != nil {
		return nil
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for _, informer := range []cache.SharedIndexInformer{c.leases, c.candidates} {
		c.informers.Go(func() { informer.RunWithContext(own) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.leases.HasSynced) {
		return fmt.Errorf("coordinator: list Leases of namespace %s: %w", c.cfg.Namespace, context.Cause(ctx))
	}
	soon, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	known := func() bool { return c.candidates.HasSynced() || c.unserved() }
	if cache.WaitForCacheSync(soon.Done(), known) {
		return nil
	}
	c.cfg.Logger.Warn("failed to list LeaseCandidates; not coordinating until it succeeds")
	if !cache.WaitForCacheSync(ctx.Done(), known) {
		return fmt.Errorf("coordinator: list LeaseCandidates of namespace %s: %w", c.cfg.Namespace, context.Cause(ctx))
	}
	return nil
}

// Close stops the watches.
func (c *Controller) Close() {
	if c.stop != nil {
		c.stop()
		c.informers.Wait()
	}
}

// Refresh reports that the Situation changed.
func (c *Controller) Refresh() {
	for _, name := range c.candidates.GetIndexer().ListIndexFuncValues(byElection) {
		c.enqueue(name)
	}
}

// Run coordinates until ctx ends. Call it once for each term.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, time.Minute))
	c.setQueue(queue)
	defer c.setQueue(nil)
	stopAfterFunc := context.AfterFunc(ctx, queue.ShutDown)
	defer stopAfterFunc()
	t := newTerm(c, queue)
	c.Refresh()
	for {
		name, shutDown := queue.Get()
		if shutDown {
			return nil
		}
		t.process(ctx, name)
		queue.Done(name)
	}
}

func (c *Controller) setQueue(queue workqueue.TypedRateLimitingInterface[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
}

func (c *Controller) enqueue(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil {
		c.queue.Add(name)
	}
}
