package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"go.uber.org/atomic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// Manager is the manager of a process that takes part in an election. NewManager creates it.
type Manager struct {
	manager.Manager // of the process, without an election

	election *leaderelection.LeaderElection
	disabled bool // the election has no lock
	kube     kube.Client
	config   *rest.Config // gated
	http     *http.Client // gated
	webhooks func() webhook.Server
	indexes  *indexes
	ready    chan struct{} // closed when the caches have synced
	started  atomic.Bool

	mu      sync.Mutex
	setups  []func(context.Context, manager.Manager) error
	warm    []client.Object
	elected chan struct{} // closed while this process leads
	stop    context.CancelFunc
	errs    []error // the reasons to end Start
}

// NewManager returns a manager whose controllers run in the terms of an election. It starts nothing. The options are as in
// manager.New, without the options of its leader election. The election logs to options.Logger, unless election.Logger is set.
// If election.StopLimit is not set, it is options.GracefulShutdownTimeout.
func NewManager(config *rest.Config, election leaderelection.Config, options manager.Options) (*Manager, error) {
	if config == nil {
		return nil, errors.New("create manager: config is nil. Use config.GetConfig of controller-runtime")
	}
	if err := validate(options); err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	m := &Manager{
		disabled: election.Disabled, ready: make(chan struct{}), elected: make(chan struct{}),
		indexes: &indexes{added: map[index]bool{}}, stop: func() {},
	}
	if err := m.elect(config, election, options); err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	if !m.disabled {
		options.NewClient = GatedClient(m.election.Gate())
	}
	var err error
	if m.Manager, err = manager.New(config, options); err != nil {
		return nil, err
	}
	if err := m.gate(config); err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	m.webhooks = sync.OnceValue(func() webhook.Server {
		return &webhooks{Server: m.Manager.GetWebhookServer(), fail: m.fail, paths: map[string]bool{}}
	})
	return m, m.Manager.Add(everywhere(func(context.Context) error {
		close(m.ready)
		return nil
	}))
}

// everywhere is a runnable that needs no election.
type everywhere func(context.Context) error

func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

func (everywhere) NeedLeaderElection() bool { return false }

// validate returns an error for each option of the manager's own election.
func validate(o manager.Options) error {
	var errs []error
	for _, option := range []struct {
		set          bool
		name, advice string
	}{
		{o.LeaderElection, "LeaderElection", "The Manager has an election already. Remove the option"},
		{o.LeaderElectionResourceLockInterface != nil, "LeaderElectionResourceLockInterface", "Use manager.New with ClientGoLock, or remove the option"},
		{o.LeaderElectionID != "", "LeaderElectionID", "Set ElectionID of the election"},
		{o.LeaderElectionNamespace != "", "LeaderElectionNamespace", "Set Namespace of the election"},
		{o.LeaseDuration != nil, "LeaseDuration", "Set LeaseDuration of the election"},
		{o.RenewDeadline != nil, "RenewDeadline", "Set RenewDeadline of the election"},
		{o.RetryPeriod != nil, "RetryPeriod", "Set RetryPeriod of the election"},
		{o.NewClient != nil, "NewClient", "Its client was created before the election and has no gate. Remove the option"},
	} {
		if option.set {
			errs = append(errs, fmt.Errorf("options.%s is set. %s", option.name, option.advice))
		}
	}
	return errors.Join(errs...)
}

// elect creates the election.
func (m *Manager) elect(config *rest.Config, election leaderelection.Config, options manager.Options) error {
	var err error
	if m.kube, err = kube.NewClient(config, kube.WithOwnConnections()); err != nil {
		return err
	}
	if options.Logger.GetSink() == nil {
		options.Logger = log.Log // as manager.New
	}
	if election.Logger == nil {
		election.Logger = slog.New(logr.ToSlogHandler(options.Logger))
	}
	if timeout := options.GracefulShutdownTimeout; election.StopLimit == 0 && timeout != nil && *timeout > 0 {
		election.StopLimit = *timeout
	}
	if m.election, err = leaderelection.New(m.kube, election); err != nil {
		return err
	}
	m.election.AddWarmup(m.warmUp)
	m.election.AddRunContext(m.runTerm)
	return nil
}

// gate creates what GetConfig and GetHTTPClient return.
func (m *Manager) gate(config *rest.Config) error {
	m.config = rest.CopyConfig(config)
	m.http = m.Manager.GetHTTPClient()
	if m.disabled {
		return nil
	}
	m.config.Wrap(m.election.Gate().Transport)
	var err error
	m.http, err = gatedHTTP(m.election.Gate(), m.http)
	return err
}

// GetConfig returns a copy of the configuration with the gate of the election. Clients created from it can write only while this
// process leads.
func (m *Manager) GetConfig() *rest.Config { return rest.CopyConfig(m.config) }

// GetHTTPClient returns the client of the process with the gate of the election.
func (m *Manager) GetHTTPClient() *http.Client { return m.http }

// Election returns the election, for its status, gate and health check. The Manager runs it.
func (m *Manager) Election() *leaderelection.LeaderElection { return m.election }

// GetWebhookServer returns the webhook server. Every replica serves its webhooks. A path that is registered twice makes Start
// return an error.
func (m *Manager) GetWebhookServer() webhook.Server { return m.webhooks() }

// Elected returns a channel that is closed while this process leads. After the end of a term it returns another channel.
func (m *Manager) Elected() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elected
}

// InTerms adds a function that creates controllers on the manager of a term. It is called at the start of each term, after the
// functions added before. ctx ends with the term. Add setups before Start.
func (m *Manager) InTerms(setup func(ctx context.Context, term manager.Manager) error) {
	if setup == nil {
		m.fail(errors.New("InTerms was called with nil. Pass a function that creates the controllers"))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setups = append(m.setups, setup)
}

// Warm fills the caches of these kinds before the process campaigns, so that a new leader does not wait for them. Call it before
// Start. If the API server does not have a kind, Start returns an error.
func (m *Manager) Warm(kinds ...client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warm = append(m.warm, kinds...)
}

// Add adds a runnable that runs in every replica. It returns an error if the runnable needs leader election.
func (m *Manager) Add(r manager.Runnable) error {
	if needsElection(r) {
		return fmt.Errorf("add runnable %T: it needs leader election. Add it to the manager of a term, in a function given to InTerms. "+
			"If it may run in every replica, give it a method NeedLeaderElection that returns false", r)
	}
	return m.Manager.Add(r)
}

// needsElection has the rule of manager.New.
func needsElection(r manager.Runnable) bool {
	switch r := r.(type) {
	case hasCache, webhook.Server:
		return false
	case manager.LeaderElectionRunnable:
		return r.NeedLeaderElection()
	}
	return true
}

type hasCache interface {
	manager.Runnable
	GetCache() cache.Cache
}

// Start runs the manager and takes part in the election until ctx ends. It returns after every runnable has returned and the lock
// was released. If a runnable does not return within StopLimit, the lock is not released, and the error wraps
// k8sleaderelection.ErrStuckDrain.
func (m *Manager) Start(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("start manager: it was started before")
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	if err := m.begin(stop); err != nil {
		return fmt.Errorf("start manager: %w", err)
	}
	defer kube.CloseIdleConnections(m.kube)
	defer registerMetrics(m.election)()
	m.leads(0)
	// Caches and webhooks end after the runnables of the term.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var all sync.WaitGroup
	all.Go(func() {
		if err := m.Manager.Start(serving); err != nil {
			m.fail(err)
		}
		stop()
	})
	if err := m.election.RunContext(running); err != nil {
		m.fail(err)
	}
	end()
	all.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.errs...)
}

func (m *Manager) begin(stop context.CancelFunc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.setups) == 0 {
		return errors.New("it has no controllers. Add a function that creates them with InTerms")
	}
	m.stop = stop
	return errors.Join(m.errs...)
}

// fail ends Start with an error.
func (m *Manager) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
	m.stop()
}

// warmUp fills the caches.
func (m *Manager) warmUp(ctx context.Context) error {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil
	}
	m.mu.Lock()
	kinds := slices.Clone(m.warm)
	m.mu.Unlock()
	for _, kind := range kinds {
		if _, err := m.GetCache().GetInformer(ctx, kind); err != nil && ctx.Err() == nil {
			return fmt.Errorf("fill the cache of %T: %w", kind, err)
		}
	}
	return nil
}

// leads sets the metric of controller-runtime, which a manager without leader election does not have.
func (m *Manager) leads(value float64) {
	if !m.disabled {
		leaderStatus(m.election.Status().Lock).Set(value)
	}
}

// runTerm is the run function of the election.
func (m *Manager) runTerm(ctx context.Context) error {
	m.mu.Lock()
	setups := slices.Clone(m.setups)
	close(m.elected)
	m.mu.Unlock()
	m.leads(1)
	t := newTerm(ctx, m, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.leads(0)
		m.elected = make(chan struct{})
	})
	if err := t.run(setups); err != nil && ctx.Err() == nil {
		m.fail(err)
	}
	return nil
}
