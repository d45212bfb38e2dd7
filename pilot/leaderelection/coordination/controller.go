package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/atomic"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
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
	cfg      Config
	stop     context.CancelFunc // nil before Warm
	watching sync.WaitGroup
	// listed closes when the Leases are known, answered when the LeaseCandidates are known, or not served.
	listed, answered chan struct{}
	answer           func()

	unserved    atomic.Bool // LeaseCandidates are not served
	dropsFields atomic.Bool // the API server drops strategy and preferredHolder of a Lease

	mu         sync.Mutex
	leases     map[string]*coordinationv1.Lease               // by name
	candidates map[string]*coordinationv1beta1.LeaseCandidate // by name
	sightings  map[string]sighting                            // of the leases, also between terms
	queue      workqueue.TypedRateLimitingInterface[string]   // nil between terms
}

// New validates the configuration and starts nothing.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Strategies == nil {
		cfg.Strategies = Own()
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &Controller{cfg: cfg, listed: make(chan struct{}), answered: make(chan struct{})}
	c.answer = sync.OnceFunc(func() { close(c.answered) })
	return c, nil
}

// Warm starts the watches. It returns when the locks are known, and the candidates or the fact that LeaseCandidates are not served.
// If the process may not list them, Warm blocks until ctx ends, so that another process can coordinate.
func (c *Controller) Warm(ctx context.Context) error {
	if c.stop != nil {
		return nil
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	leases, candidates := c.watches()
	c.watching.Go(func() { leases.Run(own) })
	c.watching.Go(func() { candidates.Run(own) })
	for kind, known := range map[string]<-chan struct{}{"Leases": c.listed, "LeaseCandidates": c.answered} {
		select {
		case <-known:
		case <-ctx.Done():
			return fmt.Errorf("coordinator: list %s of namespace %s: %w", kind, c.cfg.Namespace, context.Cause(ctx))
		}
	}
	return nil
}

// Close stops the watches.
func (c *Controller) Close() {
	if c.stop != nil {
		c.stop()
		c.watching.Wait()
	}
}

// Refresh reports that the Situation changed.
func (c *Controller) Refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, candidate := range c.candidates {
		c.enqueue(candidate.Spec.LeaseName)
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

// enqueue requires mu.
func (c *Controller) enqueue(name string) {
	if c.queue != nil {
		c.queue.Add(name)
	}
}
