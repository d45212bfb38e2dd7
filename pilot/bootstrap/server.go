package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

const (
	// stopGrace is what a part gets beyond the bound that it keeps by itself.
	stopGrace = 5 * time.Second
	userAgent = "incumbent-pilot"
)

// Server is one replica of a control plane.
type Server struct {
	config Config
	log    *slog.Logger

	work, own kube.Client // the work's, and the one without a limit for all else
	events    *events
	watcher   revisions.DefaultWatcher
	elections *leaderelection.Set
	jobs      []job
	metrics   *metrics
	fence     *fenceWatch
	others    *otherLocks
	http      *httpServer
	stopping  atomic.Bool
	reached   atomic.Bool // the API server has let this process in once
}

// New checks the configuration, reads the kubeconfig and puts the server together. It
// starts nothing.
func New(config Config) (*Server, error) { return newServer(config, config.rows()) }

func newServer(config Config, rows []election) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Server{config: config, log: config.Logger, metrics: newMetrics(), elections: leaderelection.NewSet()}
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.events = newEvents(s.own, config.Identity, s.log)
	s.fence = newFenceWatch(s.own, s.events, s.metrics.registry, s.log, config)
	s.others = newOtherLocks(s.own, s.events, s.metrics.registry, s.log, config)
	s.metrics.registry.MustRegister(standing{s.elections}, ReadBuild().metric())
	// Whatever the server's namespace, elections go by the one webhook that istiod's go by.
	s.watcher = revisions.NewDefault(s.own, revisions.Config{Revision: config.Revision, Logger: s.log})
	if err := s.elect(rows); err != nil {
		return nil, err
	}
	s.http = newHTTPServer(config.Address, s.handler(), s.log)
	return s, nil
}

// connect makes the clients. Those that keep the process informed have connections of
// their own, so that no burst of work holds them up.
func (s *Server) connect() error {
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

// Run starts the server and returns when ctx has ended and all that was started has
// ended, too, or when a part of it fails. Locks that it held are released.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("server", "version", ReadBuild().Version, "identity", s.config.Identity, "namespace", s.config.Namespace, "revision", s.config.Revision,
		"cluster", s.config.ClusterID, "lock", s.config.Lock, "elections", !s.config.DisableElections, "gate", !s.config.DisableGate, "fence", s.config.Fence)
	err := runParts(ctx, s.log, func() { s.stopping.Store(true) }, s.parts())
	kube.CloseIdleConnections(s.work)
	kube.CloseIdleConnections(s.own)
	if err != nil {
		return fmt.Errorf("server %s: %w", s.config.Identity, err)
	}
	s.log.Info("server has ended", "identity", s.config.Identity)
	return nil
}

// parts are what a server is made of, in the order in which they start.
func (s *Server) parts() []part {
	return []part{
		{name: "the HTTP server", start: s.listen, run: s.http.serve, bound: httpStop + stopGrace},
		{name: "the recorder of events", run: s.events.run, bound: eventsStop + stopGrace},
		{name: "the watcher of the default revision", run: s.watch, bound: stopGrace},
		{name: "the look-out for other locks", run: s.others.run, bound: stopGrace},
		{name: "the fence's self-test", run: s.fence.run, bound: stopGrace},
		{name: "the elections", run: s.campaign, bound: s.config.ShutdownTimeout + 2*stopGrace},
	}
}

// listen says where, which --address may have left to the system.
func (s *Server) listen() error {
	if err := s.http.listen(); err != nil {
		return err
	}
	s.log.Info("serving", "address", s.http.address(), "pprof", s.config.Profiling)
	return nil
}

// Address is where HTTP is served, "" until Run listens there.
func (s *Server) Address() string { return s.http.address() }

func (s *Server) watch(ctx context.Context) error {
	s.watcher.Run(ctx.Done())
	return nil
}

// campaign takes part in the elections. The controllers' caches end after them.
func (s *Server) campaign(ctx context.Context) error {
	defer func() {
		for _, j := range s.jobs {
			j.Close()
		}
	}()
	return s.elections.RunContext(ctx)
}
