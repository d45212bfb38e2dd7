package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Config of a Controller.
type Config struct {
	// Client reads and writes everything. An API server adds a deprecation warning to each answer about LeaseCandidates: a
	// client that is made of Quiet(config) keeps those out of the log.
	Client kubernetes.Interface
	// Namespace is that of the locks.
	Namespace string
	// Strategies are those that this coordinator chooses by; it leaves the elections of all others alone. nil means Own.
	Strategies Registry
	// Situation is what strategies look at beside the candidates; false while it is not known: then nobody is named.
	// Reconsider says that it has changed.
	Situation func() (Situation, bool)
	// EventRecorder, if given, writes Kubernetes Events about the locks.
	EventRecorder k8sresourcelock.EventRecorder
	// Logger gets a line for each choice and each new trouble; nil means slog's default.
	Logger *slog.Logger
}

// Validate says all that is missing, and how to mend it.
func (c Config) Validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("no client was given"))
	}
	for _, problem := range validation.IsDNS1123Label(c.Namespace) {
		errs = append(errs, fmt.Errorf("namespace %q: %s", c.Namespace, problem))
	}
	if c.Situation == nil {
		errs = append(errs, errors.New("no Situation was given: strategies have to know the default revision"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

// Controller names the leaders of a namespace's elections. It is to work under an election of its own; should two work at once, each
// write is guarded by the version that it was decided on. All state comes from the objects, except for how long they have been
// unchanged. Of locks a Controller observes that from Warm on, before and between its terms; of candidates, each term anew.
//
// Candidates are LeaseCandidates. Where the API server does not serve them they are members (package members) that ask for a strategy
// in an election, and then the Controller makes the locks as well.
type Controller struct {
	cfg        Config
	leases     cache.SharedIndexInformer
	candidates cache.SharedIndexInformer
	heard      *hearing
	stop       context.CancelFunc // nil: not warm
	informers  sync.WaitGroup

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[string] // nil: no term
}

// New checks the configuration and starts nothing.
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
	c := &Controller{cfg: cfg, heard: newHearing()}
	c.leases = cache.NewSharedIndexInformer(leaseSource(cfg.Client, cfg.Namespace), &coordinationv1.Lease{}, 0,
		cache.Indexers{byElection: c.heard.memberElections})
	c.candidates = cache.NewSharedIndexInformer(c.candidateSource(), &coordinationv1beta1.LeaseCandidate{}, 0,
		cache.Indexers{byElection: candidateElection})
	if err := c.candidates.SetWatchErrorHandlerWithContext(unlessUnserved); err != nil {
		return nil, err
	}
	for _, informer := range []cache.SharedIndexInformer{c.leases, c.candidates} {
		if err := informer.SetTransform(withoutManagers); err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(c.changed()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// warmTimeout is after how long Warm says that it waits for LeaseCandidates.
const warmTimeout = 10 * time.Second

// Warm begins to watch, and returns when locks and candidates are known, or that LeaseCandidates are not served. A process
// that may not list them does not get further: it would name nobody, in the place of one that could.
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
		return fmt.Errorf("coordinator: the Leases of namespace %s cannot be listed and watched: %w", c.cfg.Namespace, context.Cause(ctx))
	}
	soon, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	known := func() bool { return c.candidates.HasSynced() || c.unserved() }
	if cache.WaitForCacheSync(soon.Done(), known) {
		return nil
	}
	c.cfg.Logger.Warn("LeaseCandidates can not be listed and watched: this process does not coordinate until they can, or are known not to be served")
	if !cache.WaitForCacheSync(ctx.Done(), known) {
		return fmt.Errorf("coordinator: the LeaseCandidates of namespace %s cannot be listed and watched: %w", c.cfg.Namespace, context.Cause(ctx))
	}
	return nil
}

// Close ends what Warm began.
func (c *Controller) Close() {
	if c.stop != nil {
		c.stop()
		c.informers.Wait()
	}
}

// Reconsider says that the Situation has changed.
func (c *Controller) Reconsider() {
	for _, name := range c.elections() {
		c.enqueue(name)
	}
}

// Run coordinates until ctx ends. It is called once for each term.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, time.Minute))
	c.setQueue(queue)
	defer c.setQueue(nil)
	stopAfterFunc := context.AfterFunc(ctx, queue.ShutDown)
	defer stopAfterFunc()
	t := &work{Controller: c, queue: queue, observers: map[string]*Observer{}, troubles: map[string]string{}}
	c.Reconsider()
	for {
		name, over := queue.Get()
		if over {
			return nil
		}
		t.next(ctx, name)
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
