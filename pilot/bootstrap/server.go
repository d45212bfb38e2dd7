package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/migration"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
	"incumbent.dev/incumbent/pilot/page"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

const (
	// stopGrace is added to the bound that a part enforces itself.
	stopGrace = 5 * time.Second
	userAgent = "incumbent-pilot"
)

// Server is one replica of a control plane.
type Server struct {
	*site        // its own cluster
	remote *site // nil without a remote cluster

	http     *httpServer
	page     *electionsPage // nil without a page
	stopping atomic.Bool
	reached  atomic.Bool // the API server has accepted a request
}

// New validates the configuration, reads the kubeconfig and builds the server. It starts nothing.
func New(config Config) (*Server, error) { return newServer(config, config.rows()) }

func newServer(config Config, rows []election) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	home, err := newSite(config, leaderelection.NewSet(), rows)
	if err != nil {
		return nil, err
	}
	s := &Server{site: home}
	if config.RemoteKubeconfig != "" {
		if s.remote, err = newRemote(config, home); err != nil {
			return nil, err
		}
	}
	s.http = newHTTPServer("--address", config.Address, s.handler(), s.log)
	if config.DebugAddress != "" {
		if s.page, err = newElectionsPage(config, s.sites()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sites returns the clusters of the server, its own first.
func (s *Server) sites() []*site {
	if s.remote == nil {
		return []*site{s.site}
	}
	return []*site{s.site, s.remote}
}

// Run runs the server until ctx ends or a part fails. It returns after all parts have ended and locks are released.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("starting server", "version", ReadBuild().Version, "identity", s.config.Identity, "namespace", s.config.Namespace, "revision", s.config.Revision,
		"cluster", s.config.ClusterID, "lock", s.config.LockType, "elections", !s.config.Disabled, "gate", !s.config.DisableGate, "fence", s.config.Fence)
	err := runParts(ctx, s.log, func() { s.stopping.Store(true) }, s.parts())
	for _, at := range s.sites() {
		at.disconnect()
	}
	if err != nil {
		return fmt.Errorf("server %s: %w", s.config.Identity, err)
	}
	s.log.Info("server stopped", "identity", s.config.Identity)
	return nil
}

// parts returns the parts of a server in start order.
func (s *Server) parts() []part {
	parts := []part{{name: "HTTP server", start: s.listen, run: s.http.serve, bound: httpStop + stopGrace}}
	if s.page != nil {
		parts = append(parts, s.page.part())
	}
	for _, at := range s.sites() {
		parts = append(parts, at.services()...)
	}
	return append(parts, part{name: "elections", run: s.campaign, bound: s.config.StopLimit + 2*stopGrace})
}

// listen logs the address, because --address can have port 0.
func (s *Server) listen() error {
	if err := s.http.listen(); err != nil {
		return err
	}
	s.log.Info("serving", "address", s.http.address(), "pprof", s.config.Profiling)
	return nil
}

// Address returns the address of the HTTP server. It is empty until Run listens.
func (s *Server) Address() string { return s.http.address() }

// campaign runs the elections and stops the caches of the controllers afterwards.
func (s *Server) campaign(ctx context.Context) error {
	defer func() {
		for _, at := range s.sites() {
			at.close()
		}
	}()
	return s.elections.RunContext(ctx)
}

// site is a cluster of the server: its own or the remote cluster.
type site struct {
	config Config // AtRemote for the remote cluster
	log    *slog.Logger

	work, own kube.Client // of the controllers, and of everything else, without a limit
	events    *events
	watcher   revisions.DefaultWatcher
	tags      *tags               // nil if no row needs it
	elections *leaderelection.Set // of both sites
	mine      []*leaderelection.LeaderElection
	jobs      []job
	metrics   *metrics
	fence     *install.SelfTest        // nil without a fence
	lockTypes *migration.LockTypeCheck // nil if no lock can have another type
	member    *members.Publisher       // nil if disabled
	witness   *witness.Client          // nil without a witness
	// candidates is nil without an elections page or member Leases.
	candidates *page.CandidateWatch
	locks      *page.LockReader // nil without an elections page
}

// remoteLabel is the name of the remote cluster in logs, metrics and pages.
const remoteLabel = "remote"

// AtRemote returns the configuration for the remote cluster. Its Elections and Rights apply to the user of
// RemoteKubeconfig.
func (c Config) AtRemote() Config {
	c.Remote = true
	return c
}

// newSite builds the parts for one cluster. It starts nothing.
func newSite(config Config, elections *leaderelection.Set, rows []election) (*site, error) {
	s := &site{config: config, log: config.Logger, elections: elections}
	if config.Remote {
		s.log = s.log.With("cluster", remoteLabel)
		// Tokens of another cluster are not bound to a Pod of this cluster, so a fence cannot identify the writer.
		s.config.Fence = false
	}
	s.metrics = newMetrics(config.Remote)
	if err := s.connect(); err != nil {
		return nil, err
	}
	var err error
	if s.witness, err = config.witnessClient(); err != nil {
		return nil, err
	}
	if s.witness != nil {
		s.metrics.MustRegister(witnessMetric(s.witness))
	}
	s.events = newEvents(s.own, config.Identity, s.log)
	s.fence = s.newSelfTest()
	if !config.Disabled && config.LockType != lockMulti {
		s.lockTypes = migration.NewLockTypeCheck(migration.Config{
			Client: s.own, Events: s.events, Registry: s.metrics, Logger: s.log, RetryPeriod: config.RetryPeriod,
		})
	}
	s.watcher = revisions.NewDefault(s.own, revisions.Config{
		Revision: config.Revision, Namespace: config.Namespace, Fallback: true, Logger: s.log,
	})
	if err := s.elect(rows); err != nil {
		return nil, err
	}
	return s, s.publish()
}

// connect creates the clients. Each has its own connections, so that controllers do not delay elections.
func (s *site) connect() error {
	config, err := s.config.restConfig()
	if err != nil {
		return err
	}
	s.work, err = kube.NewClient(config, kube.WithRateLimit(s.config.QPS, s.config.Burst), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
	if err != nil {
		return err
	}
	s.own, err = kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithUserAgent(userAgent), kube.WithOwnConnections())
	return err
}

// services returns the parts of the site other than its elections.
func (s *site) services() []part {
	where := ""
	if s.config.Remote {
		where = " of the remote cluster"
	}
	var all []part
	for _, service := range []struct {
		name    string
		enabled bool
		run     func(context.Context) error
		bound   time.Duration
	}{
		{"event recorder", true, s.events.run, eventsStop + stopGrace},
		{"default revision watcher", true, s.watch, stopGrace},
		{"fence self-test", s.fence != nil, s.fence.Run, stopGrace},
		{"lock type check", s.lockTypes != nil, s.lockTypes.Run, stopGrace},
		{"member Lease", s.member != nil, s.member.Run, members.StopTimeout + stopGrace},
		{"coordinator check", s.config.followsCoordinator(), s.followCoordinator, stopGrace},
		{"candidate watcher", s.candidates != nil, s.candidates.Run, stopGrace},
		{"tag watcher", s.tags != nil, s.tags.run, stopGrace},
	} {
		if service.enabled {
			all = append(all, part{name: service.name + where, run: service.run, bound: service.bound})
		}
	}
	return all
}

func (s *site) watch(ctx context.Context) error {
	s.watcher.Run(ctx.Done())
	return nil
}

// close stops the caches of the controllers.
func (s *site) close() {
	for _, j := range s.jobs {
		j.Close()
	}
}

func (s *site) disconnect() {
	kube.CloseIdleConnections(s.work)
	kube.CloseIdleConnections(s.own)
}

var errOwnCluster = errors.New("it is the server's own cluster: give the kubeconfig of another cluster")

// newRemote builds the site of RemoteKubeconfig. The server's own cluster is an error: the server would compete with
// itself under one identity.
func newRemote(config Config, home *site) (*site, error) {
	s, err := newSite(config.AtRemote(), home.elections, config.AtRemote().rows())
	if err != nil {
		return nil, fmt.Errorf("remote cluster: %w", err)
	}
	if s.own.RESTConfig().Host == home.own.RESTConfig().Host {
		return nil, fmt.Errorf("--remote-kubeconfig=%s: %w", config.RemoteKubeconfig, errOwnCluster)
	}
	return s, nil
}
