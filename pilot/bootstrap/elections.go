package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
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
	// lease: its lock is a Lease, whatever --lock says.
	lease bool
	// remote: the controller works in a remote cluster, too, where its election is another one.
	remote bool
	// predecessor, if given, is the lock that guarded the same work in earlier versions
	// (docs/migration.md).
	predecessor *leaderelection.Predecessor
	// on reports whether a server takes part, by its flags; nil means always. Where it does not,
	// nobody asks for the row's rights.
	on func(config Config) bool
	// kinds must be known to the API server before the controller warms its caches: those
	// of CustomResourceDefinitions. Until then the row waits, and says so once.
	kinds []schema.GroupVersionResource
	// guards makes the controller. The client's writes pass the election's gate.
	guards func(client kube.Client, config Config, tools tools) (job, error)
	// rights are all that the controller reads and writes.
	rights func(config Config) manifests.Rights
	// writes are what a fence guards for the holder: all that the controller writes, and that
	// can be narrowed down. A status cannot: while its lock is missing, a fence of it would
	// refuse everyone's. It gets the gate alone, unless a declaration of the user's own (pilot fence
	// --file) names it, with wide: true.
	writes []fence.Guard
}

// tools are what a controller gets beside its client and configuration.
type tools struct {
	log *slog.Logger
	// events writes Events about the controller's objects. They are no writes of a term.
	events *events
}

// table is which elections a server takes part in. A further controller is one more row here: its
// flags are fields of Config, which its functions on, guards and rights look at, and a line in docs/controllers.md.
// Its rights are rendered with the others' (Rights), and its lock is named with theirs (Elections).
var table = []election{
	{
		id: leaderelection.NamespaceController, guards: namespaceController, rights: namespaceRights, remote: true,
		writes: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{namespace.ConfigMapName}}},
	},
	{
		id: leaderelection.IngressController, guards: ingressController, rights: ingressRights,
		on: func(c Config) bool { return c.ingress().Mode != ingress.Off },
	},
}

// rows are those of the table that a configuration turns on.
func (c Config) rows() []election {
	return slices.DeleteFunc(slices.Clone(table), func(row election) bool {
		return c.remote && !row.remote || row.on != nil && !row.on(c.withDefaults())
	})
}

// Elections lists the names of the elections that a server takes part in; those of
// perRevision get "-<revision>" appended to make their lock's name. With DisableElections there are none.
func Elections(config Config) (shared, perRevision []string) {
	if config.DisableElections {
		return nil, nil
	}
	return electionsOf(config.rows())
}

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

// Rights are what the controllers of a server need, beside what each server may.
func Rights(config Config) (all manifests.Rights) {
	for _, row := range config.rows() {
		rights := row.rights(config.withDefaults())
		all.Home, all.Everywhere = append(all.Home, rights.Home...), append(all.Everywhere, rights.Everywhere...)
	}
	return all
}

func namespaceController(client kube.Client, config Config, tools tools) (job, error) {
	return namespace.New(client, namespace.Config{
		BundleFile: config.CABundle, Excluded: config.ExcludedNamespaces, Logger: tools.log,
	})
}

func ingressController(client kube.Client, config Config, tools tools) (job, error) {
	c := config.ingress()
	c.Event, c.Logger = tools.events.Eventf, tools.log
	return ingress.New(client, c)
}

// elect puts the elections of a table together.
func (s *site) elect(rows []election) error {
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
		j, err := row.guards(client, s.config, tools{log: log, events: s.events})
		if err != nil {
			return err
		}
		le.Warm(s.known(row.kinds, log)).Warm(j.Warm).AddRunContext(logged(log, j.Run))
		s.fence.watch(le, row)
		s.others.watch(le)
		countWrites(s.metrics, le)
		s.jobs = append(s.jobs, j)
		s.elections.Add(le)
		s.mine = append(s.mine, le)
		s.metrics.leader.WithLabelValues(le.Status().Lock).Set(0)
	}
	return nil
}

func (s *site) electionConfig(row election) leaderelection.Config {
	lock, _ := lockType(s.config.Lock) // validated
	if row.lease {
		lock = leaderelection.LeaseLock
	}
	return leaderelection.Config{
		Namespace: s.config.Namespace, Identity: s.config.Identity, Revision: s.config.Revision,
		ElectionID: row.id, PerRevision: row.perRevision, Remote: s.config.remote, Lock: lock, Predecessor: row.predecessor,
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
