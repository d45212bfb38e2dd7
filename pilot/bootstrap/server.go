package bootstrap

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/atomic"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

const (
	// stopGrace is what a part gets beyond the bound that it keeps by itself.
	stopGrace = 5 * time.Second
	userAgent = "incumbent-pilot"
)

// Server is one replica of a control plane.
type Server struct {
	*site        // of its own cluster
	remote *site // nil without one

	http     *httpServer
	page     *electionsPage // nil without one
	stopping atomic.Bool
	reached  atomic.Bool // the API server has let this process in once
}

// New checks the configuration, reads the kubeconfig and puts the server together. It
// starts nothing.
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

// sites are the clusters that the server works in, its own first.
func (s *Server) sites() []*site {
	if s.remote == nil {
		return []*site{s.site}
	}
	return []*site{s.site, s.remote}
}

// Run starts the server and returns when ctx has ended and all that was started has
// ended, too, or when a part of it fails. Locks that it held are released.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("server", "version", ReadBuild().Version, "identity", s.config.Identity, "namespace", s.config.Namespace, "revision", s.config.Revision,
		"cluster", s.config.ClusterID, "lock", s.config.Lock, "elections", !s.config.DisableElections, "gate", !s.config.DisableGate, "fence", s.config.Fence)
	err := runParts(ctx, s.log, func() { s.stopping.Store(true) }, s.parts())
	for _, at := range s.sites() {
		at.disconnect()
	}
	if err != nil {
		return fmt.Errorf("server %s: %w", s.config.Identity, err)
	}
	s.log.Info("server has ended", "identity", s.config.Identity)
	return nil
}

// parts are what a server is made of, in the order in which they start.
func (s *Server) parts() []part {
	parts := []part{{name: "the HTTP server", start: s.listen, run: s.http.serve, bound: httpStop + stopGrace}}
	if s.page != nil {
		parts = append(parts, s.pagePart())
	}
	for _, at := range s.sites() {
		parts = append(parts, at.beside()...)
	}
	return append(parts, part{name: "the elections", run: s.campaign, bound: s.config.ShutdownTimeout + 2*stopGrace})
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

// campaign takes part in the elections. The controllers' caches end after them.
func (s *Server) campaign(ctx context.Context) error {
	defer func() {
		for _, at := range s.sites() {
			at.close()
		}
	}()
	return s.elections.RunContext(ctx)
}
