package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// site is a cluster in which a server elects and works: its own, or the remote one.
type site struct {
	config Config // AtRemote for the remote one
	log    *slog.Logger

	work, own kube.Client // the work's, and the one without a limit for all else
	events    *events
	watcher   revisions.DefaultWatcher
	tags      *tags               // nil unless a row needs it
	elections *leaderelection.Set // all of the server, those of its other site too
	mine      []*leaderelection.LeaderElection
	jobs      []job
	metrics   *metrics
	fence     *install.SelfTest // nil without a fence
	others    *otherLocks
	member    *members.Publisher // nil: the server says nothing of itself
	// candidates are for the elections page; nil without it, or where members say nothing.
	candidates *candidates
}

// remoteLabel is what the log, metrics and pages call the remote cluster.
const remoteLabel = "remote"

// AtRemote is what the server does in the remote cluster: Elections and Rights of it are what the user of
// RemoteKubeconfig takes part in there, and needs.
func (c Config) AtRemote() Config {
	c.remote = true
	return c
}

// newSite puts together what a server does in one cluster, and starts nothing.
func newSite(config Config, elections *leaderelection.Set, rows []election) (*site, error) {
	s := &site{config: config, log: config.Logger, elections: elections}
	if config.remote {
		s.log = s.log.With("cluster", remoteLabel)
		// Tokens of another cluster are bound to no Pod of this one: no fence could tell who writes.
		s.config.Fence = false
	}
	s.metrics = newMetrics(config.remote)
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.events = newEvents(s.own, config.Identity, s.log)
	s.fence = s.newSelfTest()
	s.others = newOtherLocks(s.own, s.events, s.metrics, s.log, s.config)
	s.metrics.MustRegister(statusCollector{s})
	// Whatever the server's namespace, elections go by the one webhook that istiod's go by.
	s.watcher = revisions.NewDefault(s.own, revisions.Config{Revision: config.Revision, Logger: s.log})
	if err := s.elect(rows); err != nil {
		return nil, err
	}
	if config.DebugAddress != "" && !config.memberless() {
		s.candidates = newCandidates(s.own, config.Namespace, s.log)
	}
	return s, s.publish()
}

// connect makes the clients. Those that keep the process informed have connections of
// their own, so that no burst of work holds them up.
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

// beside is what runs beside the site's elections.
func (s *site) beside() []part {
	where := ""
	if s.config.remote {
		where = " of the remote cluster"
	}
	all := []part{
		{name: "the recorder of events" + where, run: s.events.run, bound: eventsStop + stopGrace},
		{name: "the watcher of the default revision" + where, run: s.watch, bound: stopGrace},
		{name: "the look-out for other locks" + where, run: s.others.run, bound: stopGrace},
	}
	if s.fence != nil {
		all = append(all, part{name: "the fence's self-test" + where, run: s.fence.Run, bound: stopGrace})
	}
	if s.member != nil {
		all = append(all, part{name: "the member Lease" + where, run: s.member.Run, bound: members.StopTimeout + stopGrace})
	}
	if s.config.Coordinator && s.config.ElectionStrategy != "" && !s.config.DisableElections && !s.config.remote {
		all = append(all, part{name: "the look-out for the coordinator", run: s.followCoordinator, bound: stopGrace})
	}
	if s.candidates != nil {
		all = append(all, part{name: "the watcher of members" + where, run: s.candidates.run, bound: stopGrace})
	}
	if s.tags != nil {
		all = append(all, part{name: "the watcher of tags" + where, run: s.tags.run, bound: stopGrace})
	}
	return all
}

func (s *site) watch(ctx context.Context) error {
	s.watcher.Run(ctx.Done())
	return nil
}

// close ends the controllers' caches, once the elections have ended.
func (s *site) close() {
	for _, j := range s.jobs {
		j.Close()
	}
}

func (s *site) disconnect() {
	kube.CloseIdleConnections(s.work)
	kube.CloseIdleConnections(s.own)
}

var errOwnCluster = errors.New("it is the server's own cluster: give another one's kubeconfig")

// newRemote is the site of RemoteKubeconfig. One that leads to the server's own cluster is refused: there
// the server would stand against itself, under one name.
func newRemote(config Config, home *site) (*site, error) {
	s, err := newSite(config.AtRemote(), home.elections, config.AtRemote().rows())
	if err != nil {
		return nil, fmt.Errorf("the remote cluster: %w", err)
	}
	if s.own.RESTConfig().Host == home.own.RESTConfig().Host {
		return nil, fmt.Errorf("--remote-kubeconfig=%s: %w", config.RemoteKubeconfig, errOwnCluster)
	}
	return s, nil
}
