package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-multierror"
	"go.uber.org/atomic"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/hooks"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// LeaderElection is the part of this process in one election. New and the other constructors create it.
type LeaderElection struct {
	cfg     Config
	client  kube.Client
	hooks   hooks.Queue  // writes to the Logger of cfg, which may block
	log     *slog.Logger // uses hooks
	invalid error        // RunContext returns it; constructors as in istiod have no error result
	sharing bool         // uses the default watcher that elections of istiod's constructors share

	clock  *k8sleaderelection.Clock
	gate   *gate.Gate
	health *k8sleaderelection.HealthzAdaptor
	// elector is the elector of the current or last run. Before the first run it is the elector with which the
	// configuration was checked.
	elector     atomic.Pointer[k8sleaderelection.LeaderElector]
	predecessor predecessor
	held        atomic.Pointer[held] // nil without a held predecessor
	label       *podLabel            // nil without Config.LabelPod
	lockClient  kubernetes.Interface // of the current or last run
	running     atomic.Bool
	warmed      atomic.Bool // in the current or last run
	// followOnce adds the handler to a default watcher from which handlers cannot be removed.
	followOnce sync.Once
	shared     *k8sresourcelock.Shared // nil if the caller provided the LockClient

	gatedOnce sync.Once
	gated     kube.Client // result of Client
	mu        sync.Mutex
	functions []func(context.Context) error
	names     []string // of functions, for logs
	warmups   []func(context.Context) error
	absent    bool // the coordinator is absent
	unserved  bool // the API server does not serve LeaseCandidates
	checks    []func(context.Context) error
}

// New returns an election that does not run yet. The error lists everything that is invalid in cfg.
func New(client kube.Client, cfg Config) (*LeaderElection, error) {
	l := newElection(client, cfg)
	if l.invalid != nil {
		return nil, l.invalid
	}
	return l, nil
}

func newElection(client kube.Client, cfg Config) *LeaderElection {
	cfg = cfg.withDefaults()
	l := &LeaderElection{cfg: cfg, client: client, clock: cfg.Clock}
	l.log = l.hooks.Logger(cfg.Logger)
	if l.clock == nil {
		l.clock = k8sleaderelection.NewClock(nil)
	}
	l.gate = gate.New(cfg.lockName(), l.clock)
	l.health = k8sleaderelection.NewLeaderHealthzAdaptor(cfg.HealthTolerance)
	if cfg.LabelPod != (types.NamespacedName{}) {
		l.label = &podLabel{LeaderElection: l, changes: make(chan labelChange)}
		l.AddRunContext(l.label.run)
	}
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

// connect creates the elector, with a lock that uses client.
func (l *LeaderElection) connect(client kubernetes.Interface) error {
	config := l.electorConfig(client)
	if err := config.Validate(); err != nil {
		return err
	}
	if p := l.cfg.Predecessor; p != nil && p.Hold {
		return l.connectHeld(client, config)
	}
	elector, err := k8sleaderelection.NewLeaderElector(config)
	if err != nil {
		return err
	}
	l.elector.Store(elector)
	l.setUncoordinated(func() {})
	return nil
}

// connectHeld creates the two electors of an election with a held predecessor.
func (l *LeaderElection) connectHeld(client kubernetes.Interface, config k8sleaderelection.LeaderElectionConfig) error {
	h, err := l.hold(client, config)
	if err != nil {
		return err
	}
	l.held.Store(h)
	l.elector.Store(h.inner)
	l.predecessor.elector.Store(h.outer)
	return nil
}

func (l *LeaderElection) electorConfig(client kubernetes.Interface) k8sleaderelection.LeaderElectionConfig {
	c := l.configOn(l.lock(client, l.shared))
	c.Name = l.cfg.lockName()
	c.RunFunctions = []func(context.Context) error{l.work}
	c.RunFunctionNames = []string{l.functionNames()}
	c.Gate = l.gate
	c.Witness = l.cfg.Witness
	c.ReleaseOnCancel = true
	c.Ranked = !l.cfg.PerRevision
	c.SyncWait = l.cfg.syncWait()
	c.PreemptImmediately = l.cfg.PreemptImmediately
	if l.cfg.PerRevision {
		c.DefaultRevision = nil
	}
	c.Coordinated = l.cfg.Coordination != nil
	c.OnStuckDrain = l.cfg.OnStuckDrain
	c.ExitOnStuckDrain = l.cfg.ExitOnStuckDrain
	c.FitnessCheck = l.fitness()
	c.WatchDog = l.health
	c.Observer = l.cfg.Observer
	return c
}

// configOn returns the configuration that the electors of the election and of the predecessor's lock have in common.
func (l *LeaderElection) configOn(lock k8sresourcelock.Interface) k8sleaderelection.LeaderElectionConfig {
	return k8sleaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: l.cfg.LeaseDuration, RenewDeadline: l.cfg.RenewDeadline, RetryPeriod: l.cfg.RetryPeriod,
		DrainLimit: l.cfg.DrainLimit, StopLimit: l.cfg.StopLimit, PeerGrace: l.cfg.PeerGrace,
		Clock: l.clock, Shared: l.shared, Logger: l.cfg.Logger, DefaultRevision: l.knownDefault,
	}
}

// lock returns the lock of the election. If shared is nil, the lock has its own watch.
func (l *LeaderElection) lock(client kubernetes.Interface, shared *k8sresourcelock.Shared) k8sresourcelock.Lock {
	meta := metav1.ObjectMeta{Namespace: l.cfg.Namespace, Name: l.cfg.lockName(), Labels: l.cfg.LockLabels, OwnerReferences: l.cfg.LockOwners}
	return l.lockOn(client, meta, l.cfg.Lock, shared)
}

func (l *LeaderElection) lockOn(client kubernetes.Interface, meta metav1.ObjectMeta, kind LockType, shared *k8sresourcelock.Shared) k8sresourcelock.Lock {
	who := k8sresourcelock.ResourceLockConfig{Identity: l.cfg.holder(), Key: l.cfg.key(), EventRecorder: l.cfg.EventRecorder}
	return k8sresourcelock.NewLock(kind, meta, client, who, shared)
}

// AddRunFunction adds a function that runs while this process leads. stop is closed when the function
// must return. The lock is released after it has returned. Add functions before the election runs.
func (l *LeaderElection) AddRunFunction(f func(stop <-chan struct{})) *LeaderElection {
	return l.addFunction(k8sleaderelection.FunctionName(f), func(ctx context.Context) error {
		f(ctx.Done())
		return nil
	})
}

// AddRunContext adds a function that runs while this process leads. ctx ends when the function must
// return. If the function returns an error before that, this process steps down as with StepDown. If it
// returns nil, the term continues. Add functions before the election runs.
func (l *LeaderElection) AddRunContext(f func(ctx context.Context) error) *LeaderElection {
	return l.addFunction(k8sleaderelection.FunctionName(f), f)
}

func (l *LeaderElection) addFunction(name string, f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.functions = append(l.functions, f)
	l.names = append(l.names, name)
	return l
}

func (l *LeaderElection) functionNames() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.names, ", ")
}

// AddWarmup adds a function that prepares the run functions, for example fills caches, and returns. The
// process campaigns after all warm-up functions have returned. An error ends RunContext.
func (l *LeaderElection) AddWarmup(f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warmups = append(l.warmups, f)
	return l
}

// AddFitnessCheck adds a check whether this process is fit to lead. An error is the reason why it is not.
// Checks run once per RetryPeriod and must return when their context ends. An unfit candidate does not
// campaign. A leader that becomes unfit keeps the lock, marks itself unfit in the record, and hands over to
// the first candidate that asks.
func (l *LeaderElection) AddFitnessCheck(f func(ctx context.Context) error) *LeaderElection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks = append(l.checks, f)
	return l
}

// fitness returns a function that runs all checks, or nil if there are none.
func (l *LeaderElection) fitness() func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.checks) == 0 {
		return nil
	}
	checks := slices.Clone(l.checks)
	return func(ctx context.Context) error {
		for _, check := range checks {
			if err := check(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// work runs all run functions and returns when they have returned. The first error cancels the other
// functions, so that the step-down does not wait for them. An error after the cancellation is ignored. A
// single function runs in this goroutine, because each goroutine and stack frame of a term costs memory.
func (l *LeaderElection) work(ctx context.Context) error {
	functions := l.runFunctions()
	if len(functions) != 1 {
		return runAll(ctx, functions)
	}
	if err := functions[0](ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (l *LeaderElection) runFunctions() []func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.functions)
}

// runAll runs functions in parallel until all have returned.
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

// echoes reports whether err only repeats the cause of the cancellation.
func echoes(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// IsLeader reports whether this process leads, by the clock: a process that is disconnected from the API
// server stops leading at the end of its validity.
func (l *LeaderElection) IsLeader() bool {
	if l.cfg.Disabled {
		return l.running.Load()
	}
	if h := l.held.Load(); h != nil && !h.outer.IsLeader() {
		return false
	}
	e := l.elector.Load()
	return e != nil && e.IsLeader()
}

// Leader returns the identity and key of the holder in the last seen record. They are empty if the record
// has no holder. With a held Predecessor, it is the holder of that lock if no holder of the new lock is active.
func (l *LeaderElection) Leader() (identity, key string) {
	s := l.electorStatus()
	return s.Holder, s.HolderKey
}

// electorStatus returns the status of the elector, or of the two electors with a held predecessor.
func (l *LeaderElection) electorStatus() k8sleaderelection.Status {
	if h := l.held.Load(); h != nil {
		return h.status()
	}
	if e := l.elector.Load(); e != nil {
		return e.Status()
	}
	return k8sleaderelection.Status{}
}

// Client returns a client with the gate of this election: writes outside the term fail with
// gate.ErrNotLeader. If the election stops or hands over, the term ends when the run functions have returned, so
// they can clean up after the end of their context. Reads always succeed. A fake clientset is returned without a gate.
func (l *LeaderElection) Client() kube.Client {
	if l.cfg.Disabled {
		return l.client
	}
	// New does not create this client, because it needs 30 KiB, twice as much as the rest of an election.
	l.gatedOnce.Do(func() { l.gated = l.gatedClient() })
	return l.gated
}

func (l *LeaderElection) gatedClient() kube.Client {
	gate := kube.WithWrapTransport(l.gate.Transport)
	client, err := kube.Derive(l.client, gate)
	if err == nil {
		return client
	}
	// An ungated client is not safe. Each request of this client fails with the error.
	client, _ = kube.NewClient(&rest.Config{
		Host: "http://" + rootNamespace + ".invalid",
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err },
	}, gate) // this configuration is valid
	return client
}

// Gate returns the gate of the election, for the transports of other clients. If Config.Disabled is true,
// the gate never opens. Client then returns a client without a gate.
func (l *LeaderElection) Gate() *gate.Gate { return l.gate }

// Healthz returns the check that fails if run functions are active after their lease. See Config.HealthTolerance.
func (l *LeaderElection) Healthz() *k8sleaderelection.HealthzAdaptor { return l.health }

// StepDown ends the current term, if this process leads. The process then does not campaign for one
// RetryPeriod. The time doubles with each further step-down, up to 32 periods. StepDown does not block.
func (l *LeaderElection) StepDown() {
	e := l.elector.Load()
	if h := l.held.Load(); h != nil {
		e = h.outer
	}
	if e != nil {
		e.StepDown()
	}
}
