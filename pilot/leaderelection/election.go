package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/hashicorp/go-multierror"
	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// LeaderElection is this process's part in one election.
type LeaderElection struct {
	cfg     Config
	client  kube.Client
	invalid error // what a constructor without an error of its own found
	sharing bool  // takes part in what Istio-style elections of a client share

	clock  *k8sleaderelection.Clock
	gate   *fence.Gate
	health *k8sleaderelection.HealthzAdaptor
	// elector is the one that runs, or ran last. Before that it is the one by which
	// the configuration was checked.
	elector     atomic.Pointer[k8sleaderelection.LeaderElector]
	predecessor predecessor
	lockClient  kubernetes.Interface // of the current or last run
	running     atomic.Bool
	warmed      atomic.Bool // since the run that there is, or was last
	absent      atomic.Bool // the coordinator is known to be gone
	// publisher is that of the run that there is, or was last; nil: nobody chooses.
	publisher atomic.Pointer[leasecandidate.Publisher]
	// follow is how the default revision is followed by a watcher whose handlers stay; nil until that was tried.
	follow   func() (unfollow func())
	registry *registry               // where to find what it shares with others of its client
	shared   *k8sresourcelock.Shared // what its locks do; nil: nothing

	gatedOnce sync.Once
	gated     kube.Client // what Client returns
	mu        sync.Mutex
	functions []func(context.Context) error
	warm      []func(context.Context) error
	fit       []func(context.Context) error
}

// ErrRunning is returned by a second RunContext beside a first.
var ErrRunning = k8sleaderelection.ErrRunning

// New checks the configuration and starts nothing. The error lists all that is
// wrong with it, and how to correct that.
func New(client kube.Client, cfg Config) (*LeaderElection, error) {
	l := newElection(client, cfg)
	if l.invalid != nil {
		return nil, l.invalid
	}
	return l, nil
}

func newElection(client kube.Client, cfg Config) *LeaderElection {
	cfg = cfg.withDefaults()
	l := &LeaderElection{cfg: cfg, client: client, clock: k8sleaderelection.NewClock(nil), registry: &alone}
	l.gate = fence.NewGate(cfg.lockName(), l.clock)
	l.health = k8sleaderelection.NewLeaderHealthzAdaptor(cfg.HealthTolerance)
	l.invalid = l.validate()
	return l
}

func (l *LeaderElection) validate() error {
	if l.client == nil {
		return errors.New("election: no client was given")
	}
	err := l.cfg.validate()
	if err == nil {
		err = l.connect(l.client.Kube())
	}
	if err != nil {
		return fmt.Errorf("election %q in namespace %q: %w", l.cfg.lockName(), l.cfg.Namespace, err)
	}
	return nil
}

// connect makes the elector, with a lock on client.
func (l *LeaderElection) connect(client kubernetes.Interface) error {
	elector, err := k8sleaderelection.NewLeaderElector(l.electorConfig(client))
	if err != nil {
		return err
	}
	elector.SetCoordinatorAbsent(l.absent.Load())
	l.elector.Store(elector)
	return nil
}

// electorConfig configures the election's elector.
func (l *LeaderElection) electorConfig(client kubernetes.Interface) k8sleaderelection.LeaderElectionConfig {
	c := l.configOn(l.lock(client, l.shared))
	c.Name, c.RunFunctions, c.Gate = l.cfg.lockName(), []func(context.Context) error{l.work}, l.gate
	c.ReleaseOnCancel = true
	c.Ranked, c.SyncWait, c.PreemptImmediately = !l.cfg.PerRevision, l.cfg.syncWait(), l.cfg.PreemptImmediately
	if l.cfg.PerRevision {
		c.DefaultRevision = nil
	}
	c.Coordinated = l.cfg.Coordination != nil
	c.OnStuckDrain, c.ExitOnStuckDrain = l.cfg.OnStuckDrain, l.cfg.ExitOnStuckDrain
	c.FitnessCheck, c.WatchDog, c.Observer = l.fitness(), l.health, l.cfg.Observer
	return c
}

// configOn is the configuration that the electors of the election and of its predecessor's lock have in common.
func (l *LeaderElection) configOn(lock k8sresourcelock.Interface) k8sleaderelection.LeaderElectionConfig {
	return k8sleaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: l.cfg.LeaseDuration, RenewDeadline: l.cfg.RenewDeadline, RetryPeriod: l.cfg.RetryPeriod,
		DrainLimit: l.cfg.DrainLimit, StopLimit: l.cfg.StopLimit, PeerGrace: l.cfg.PeerGrace,
		Clock: l.clock, Shared: l.shared, Logger: l.cfg.Logger, DefaultRevision: l.knownDefault,
	}
}

// lock makes the election's. With nil its watch is its own.
func (l *LeaderElection) lock(client kubernetes.Interface, shared *k8sresourcelock.Shared) k8sresourcelock.Interface {
	return l.lockOn(client, metav1.ObjectMeta{Namespace: l.cfg.Namespace, Name: l.cfg.lockName()}, l.cfg.Lock, shared)
}

func (l *LeaderElection) lockOn(client kubernetes.Interface, meta metav1.ObjectMeta, kind LockType, shared *k8sresourcelock.Shared) k8sresourcelock.Versioned {
	who := k8sresourcelock.ResourceLockConfig{Identity: l.cfg.holder(), Key: l.cfg.key(), EventRecorder: l.cfg.EventRecorder}
	configMap := &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: client.CoreV1(), LockConfig: who}
	lease := &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: client.CoordinationV1(), LockConfig: who, Shared: shared}
	switch kind {
	case LockTypeLease:
		return lease
	case LockTypeMulti:
		return &k8sresourcelock.MultiLock{Primary: configMap, Secondary: lease}
	case LockTypeConfigMap:
	}
	return configMap
}

// AddRunFunction adds a function that runs while this process leads. Its channel is
// closed when it has to stop; the lock is not given up before it has returned. Add
// functions before the election runs.
func (l *LeaderElection) AddRunFunction(f func(stop <-chan struct{})) *LeaderElection {
	return l.AddRunContext(func(ctx context.Context) error {
		f(ctx.Done())
		return nil
	})
}

// AddRunContext adds a function that runs while this process leads. Its context ends
// when it has to stop. If it returns an error before that, this process steps down as by
// StepDown, so that another candidate gets its chance; if it returns nil, it is done and
// the term goes on.
func (l *LeaderElection) AddRunContext(f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.functions = append(l.functions, f)
	return l
}

// AddWarmup adds a function that prepares run functions, such as by filling caches, and
// then returns. The process does not campaign before all have returned. An error ends
// RunContext.
func (l *LeaderElection) AddWarmup(f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warm = append(l.warm, f)
	return l
}

// AddFitnessCheck adds a check whether this process is fit to lead; an error says why not. Checks are
// made once per RetryPeriod and must return when their context has ended. One that is
// unfit does not campaign; a leader that becomes unfit leads on, says so in the lock and
// hands over to the first candidate that asks. A lock is never left to nobody for it.
func (l *LeaderElection) AddFitnessCheck(f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fit = append(l.fit, f)
	return l
}

// fitness is all checks as one; nil when there are none.
func (l *LeaderElection) fitness() func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fit) == 0 {
		return nil
	}
	checks := append([]func(context.Context) error{}, l.fit...)
	return func(ctx context.Context) error {
		var err error
		for _, check := range checks {
			if err = check(ctx); err != nil {
				break
			}
		}
		if p := l.publisher.Load(); p != nil && ctx.Err() == nil {
			p.SetFit(err == nil)
		}
		return err
	}
}

// work runs all functions and returns when they have. The first error tells the
// others to stop, so that the step-down need not wait for them. An error that one returns
// after it was told to stop is no failure. A single one runs here for as long as a term
// lasts: it gets no goroutine of its own, and as little stack below it as can be.
func (l *LeaderElection) work(ctx context.Context) error {
	only := l.onlyFunction()
	if only == nil {
		return l.workSideBySide(ctx)
	}
	if err := only(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// onlyFunction is the run function if there is one and no other.
func (l *LeaderElection) onlyFunction() func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.functions) != 1 {
		return nil
	}
	return l.functions[0]
}

func (l *LeaderElection) workSideBySide(ctx context.Context) error {
	l.mu.Lock()
	functions := append([]func(context.Context) error{}, l.functions...)
	l.mu.Unlock()
	return runAll(ctx, functions)
}

// runAll runs functions side by side until all have returned.
func runAll(parent context.Context, functions []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs *multierror.Error
	)
	for _, f := range functions {
		all.Go(func() {
			err := k8sleaderelection.ErrGoexit // unless f returns
			defer func() {
				if err == nil || parent.Err() != nil || echoes(ctx, err) {
					return
				}
				mu.Lock()
				errs = multierror.Append(errs, err)
				mu.Unlock()
				cancel(err)
			}()
			err = f(ctx)
		})
	}
	all.Wait()
	return errlist.Error(errs)
}

// echoes reports whether err only repeats that ctx has ended.
func echoes(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// IsLeader reports whether this process may act now. It asks the clock: a process cut
// off from the API server stops being leader on time.
func (l *LeaderElection) IsLeader() bool {
	if l.cfg.Disabled {
		return l.running.Load()
	}
	e := l.elector.Load()
	return e != nil && e.IsLeader()
}

// Leader returns the identity and key of the holder that the record last seen names; empty
// when it names nobody.
func (l *LeaderElection) Leader() (identity, key string) {
	e := l.elector.Load()
	if e == nil {
		return "", ""
	}
	s := e.Status()
	return s.Holder, s.HolderKey
}

// Client returns a client whose writes pass this election's gate: outside the term
// they fail with fence.ErrNotLeader. Reads always pass. A fake clientset has no transport
// to put a gate into: it is returned as it is.
func (l *LeaderElection) Client() kube.Client {
	if l.cfg.Disabled {
		return l.client
	}
	// Not in New: a client is 30 KiB, twice what all else of an election takes.
	l.gatedOnce.Do(func() { l.gated = l.gatedClient() })
	return l.gated
}

func (l *LeaderElection) gatedClient() kube.Client {
	gate := kube.WithWrapTransport(l.gate.Transport)
	client, err := kube.Derive(l.client, gate)
	if err == nil {
		return client
	}
	// No client without the gate may take its place. This one reaches nothing, and says why.
	client, _ = kube.NewClient(&rest.Config{
		Host: "http://" + rootNamespace + ".invalid",
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err },
	}, gate) // of which nothing can be wrong
	return client
}

// Gate returns the election's gate, to put into other clients' transports. With
// Config.Disabled it never opens, while Client returns a client without a gate.
func (l *LeaderElection) Gate() *fence.Gate { return l.gate }

// Healthz returns the check that fails when run functions outlive their lease.
func (l *LeaderElection) Healthz() *k8sleaderelection.HealthzAdaptor { return l.health }

// StepDown ends this process's present term, if it has one, and keeps it from campaigning for
// one RetryPeriod, doubled for each further step-down in a row, up to 32. It does not block.
func (l *LeaderElection) StepDown() {
	if e := l.elector.Load(); e != nil {
		e.StepDown()
	}
}
