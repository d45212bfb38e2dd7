package bootstrap

import (
	"context"
	"fmt"
	"log/slog"

	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
)

// job is a controller that an election guards, and that knows nothing of it.
type job interface {
	// Warm prepares, before the process campaigns.
	Warm(ctx context.Context) error
	// Run works until ctx ends, once for each term.
	Run(ctx context.Context) error
	// Close ends what Warm started.
	Close()
}

// election is one row of the table of elections.
type election struct {
	id string
	// perRevision: each revision elects for itself.
	perRevision bool
	// guards makes the controller. The client's writes pass the election's gate.
	guards func(client kube.Client, config Config, log *slog.Logger) (job, error)
	// writes are what a fence guards for the holder: all that the controller writes.
	writes []fence.Guard
}

// table is which elections a server takes part in.
var table = []election{
	{
		id: leaderelection.NamespaceController, guards: namespaceController,
		writes: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{namespace.ConfigMapName}}},
	},
}

// Elections lists the names of the elections that a server takes part in; those of
// perRevision get "-<revision>" appended to make their lock's name.
func Elections() (shared, perRevision []string) { return electionsOf(table) }

func electionsOf(rows []election) (shared, perRevision []string) {
	for _, row := range rows {
		if row.perRevision {
			perRevision = append(perRevision, row.id)
		} else {
			shared = append(shared, row.id)
		}
	}
	return shared, perRevision
}

func namespaceController(client kube.Client, config Config, log *slog.Logger) (job, error) {
	return namespace.New(client, namespace.Config{
		BundleFile: config.CABundle, Excluded: config.ExcludedNamespaces, Logger: log,
	})
}

// elect puts the elections of a table together.
func (s *Server) elect(rows []election) error {
	for _, row := range rows {
		le, err := leaderelection.New(s.work, s.electionConfig(row))
		if err != nil {
			return fmt.Errorf("elections (--lease-duration, --renew-deadline, --retry-period): %w", err)
		}
		log := s.log.With("election", row.id)
		client := le.Client()
		if s.config.DisableGate {
			client = s.work
		}
		j, err := row.guards(client, s.config, log)
		if err != nil {
			return err
		}
		le.Warm(j.Warm).AddRunContext(logged(log, j.Run))
		s.fence.watch(le, row)
		s.others.watch(le)
		countWrites(s.metrics.registry, le)
		s.jobs = append(s.jobs, j)
		s.elections.Add(le)
		s.metrics.leader.WithLabelValues(le.Status().Lock).Set(0)
	}
	return nil
}

func (s *Server) electionConfig(row election) leaderelection.Config {
	lock, _ := lockType(s.config.Lock) // validated
	return leaderelection.Config{
		Namespace: s.config.Namespace, Identity: s.config.Identity, Revision: s.config.Revision,
		ElectionID: row.id, PerRevision: row.perRevision, Lock: lock,
		LeaseDuration: s.config.LeaseDuration, RenewDeadline: s.config.RenewDeadline, RetryPeriod: s.config.RetryPeriod,
		StopLimit:       s.config.ShutdownTimeout,
		HealthTolerance: s.config.healthTolerance,
		DefaultWatcher:  s.watcher,
		Disabled:        s.config.DisableElections,
		EventRecorder:   s.events,
		Observer:        s.metrics,
		OnStuckDrain: func() {
			s.log.Error("a controller has outstayed its drain", "election", row.id, "exit", s.config.Exit != nil)
			if s.config.Exit != nil {
				s.config.Exit()
			}
		},
		Logger: s.log,
	}
}

// logged brackets a run function's life with two lines, by which one can tell from
// logs who worked when.
func logged(log *slog.Logger, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		log.Info("run function started")
		err := run(ctx)
		if err != nil {
			log.Error("run function ended", "error", err)
		} else {
			log.Info("run function ended")
		}
		return err
	}
}
