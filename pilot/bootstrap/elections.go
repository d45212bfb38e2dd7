package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
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
	// uncoordinated: no coordinator chooses who leads it, whatever --election-strategy says.
	uncoordinated bool
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
	// tagged: the controller looks at the tags of revisions, to tell its own objects from
	// others'. The server watches them, and the row waits until they are known.
	tagged bool
	// guards makes the controller. The client's writes pass the election's gate.
	guards func(client kube.Client, config Config, tools tools) (job, error)
	// rights are all that the controller reads and writes.
	rights func(config Config) manifests.Rights
	// writes are what a fence guards for the holder: all that the controller writes, and that
	// names or labels narrow down. A status they do not: while its lock is missing, a fence of it would
	// refuse everyone's. It gets the gate alone, unless a declaration of the user's own (pilot fence
	// --file) names it, with wide: true.
	writes []fence.Guard
}

// tools are what a controller gets beside its client and configuration.
type tools struct {
	log *slog.Logger
	// events writes Events about the controller's objects. They are no writes of a term.
	events *events
	// watcher knows the default revision.
	watcher revisions.DefaultWatcher
	// tags tells a row that is tagged which objects are the revision's; nil for others.
	tags revisions.TagWatcher
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
	{
		id: leaderelection.GatewayStatusController, perRevision: true, lease: true, tagged: true,
		// Which guarded the status for all revisions, istiods' too, before each had an election.
		predecessor: &leaderelection.Predecessor{Name: leaderelection.GatewayStatusController, Lock: leaderelection.ConfigMapLock},
		on:          func(c Config) bool { return !c.DisableGatewayAPI && !c.DisableGatewayStatus },
		kinds:       gatewayKinds("gatewayclasses", "gateways", "httproutes", "referencegrants"),
		guards:      gatewayStatus, rights: gatewayStatusRights,
	},
	{
		id: leaderelection.GatewayDeploymentController, perRevision: true, lease: true, tagged: true,
		on:     func(c Config) bool { return !c.DisableGatewayAPI && !c.DisableGatewayDeployment },
		kinds:  gatewayKinds("gatewayclasses", "gateways"),
		guards: gatewayDeployment, rights: gatewayDeploymentRights, writes: gatewayDeploymentWrites,
	},
	{
		id: leaderelection.Coordinator, lease: true, uncoordinated: true,
		on:     func(c Config) bool { return c.Coordinator },
		guards: coordinator, rights: coordinatorRights,
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

// Rights are what a server of a configuration needs, beside what each server may: the locks of its
// elections, those within its revision included, and what its controllers read and write.
func Rights(config Config) (all manifests.Rights) {
	config = config.withDefaults()
	rows := config.rows()
	for _, row := range rows {
		if !config.DisableElections {
			all.Add(row.locks(config.Revision))
		}
		all.Add(row.rights(config))
	}
	if slices.ContainsFunc(rows, func(row election) bool { return config.coordination(row) != nil }) {
		all.Add(candidateRights())
	}
	if !config.memberless() {
		all.Add(memberRights())
	}
	if slices.ContainsFunc(rows, func(row election) bool { return row.tagged }) {
		all.Add(tagRights())
	}
	return all
}

// GuardedLeases are the locks by which a fence of one revision judges, and which nobody but that revision's servers makes: as long
// as one is missing, the API server refuses everyone what it guards.
func GuardedLeases(config Config) (names []string) {
	config = config.withDefaults()
	if !config.Fence || config.DisableElections {
		return nil
	}
	for _, row := range config.rows() {
		if row.perRevision && row.lease && len(row.writes) > 0 {
			names = append(names, row.id+"-"+config.Revision)
		}
	}
	return names
}

// locks are the lock objects of a row. Those of a row that goes by --lock may be of either kind, and of both
// while it moves from one to the other.
func (row election) locks(revision string) (all manifests.Rights) {
	name := row.id
	if row.perRevision {
		name += "-" + revision
	}
	all.Leases = []string{name}
	if !row.lease {
		all.ConfigMaps = []string{name}
	}
	if p := row.predecessor; p != nil && p.Lock == leaderelection.ConfigMapLock {
		all.ConfigMaps = append(all.ConfigMaps, p.Name)
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
	s.followTags(rows)
	for _, row := range rows {
		le, err := leaderelection.New(s.work, s.electionConfig(row))
		if err != nil {
			return fmt.Errorf("elections (--lease-duration, --renew-deadline, --retry-period): %w", err)
		}
		log := s.log.With("election", le.Status().Lock)
		client := le.Client()
		if s.config.DisableGate {
			client = s.work
		}
		j, err := row.guards(client, s.config, s.tools(log))
		if err != nil {
			return err
		}
		le.Warm(s.warm(row, j, le.Status().Lock, log)).AddRunContext(logged(log, j.Run))
		s.testFence(le, row)
		if !row.lease && s.lockTypes != nil {
			s.lockTypes.Watch(le)
		}
		countWrites(s.metrics, le)
		s.jobs = append(s.jobs, j)
		s.elections.Add(le)
		s.mine = append(s.mine, le)
		s.metrics.leader.WithLabelValues(le.Status().Lock).Set(0)
	}
	return nil
}

func (s *site) tools(log *slog.Logger) tools {
	t := tools{log: log, events: s.events, watcher: s.watcher}
	if s.tags != nil {
		t.tags = s.tags.watcher
	}
	return t
}

// warm prepares a row's controller, as soon as there is what it reads.
func (s *site) warm(row election, j job, lock string, log *slog.Logger) func(context.Context) error {
	if len(row.kinds) > 0 {
		s.metrics.missing.WithLabelValues(lock).Set(0)
	}
	return func(ctx context.Context) error {
		if err := s.awaitKinds(ctx, lock, row.kinds, log); err != nil {
			return err
		}
		if row.tagged {
			if err := s.tags.await(ctx); err != nil {
				return err
			}
		}
		return j.Warm(ctx)
	}
}

func (s *site) electionConfig(row election) leaderelection.Config {
	lock, _ := lockType(s.config.Lock) // validated
	if row.lease {
		lock = leaderelection.LeaseLock
	}
	return leaderelection.Config{
		Coordination: s.config.coordination(row),
		Namespace:    s.config.Namespace, Identity: s.config.Identity, Revision: s.config.Revision,
		ElectionID: row.id, PerRevision: row.perRevision, Remote: s.config.remote, Lock: lock, Predecessor: row.predecessor,
		LeaseDuration: s.config.LeaseDuration, RenewDeadline: s.config.RenewDeadline, RetryPeriod: s.config.RetryPeriod,
		StopLimit:        s.config.ShutdownTimeout,
		HealthTolerance:  s.config.healthTolerance,
		DefaultWatcher:   s.watcher,
		Disabled:         s.config.DisableElections,
		EventRecorder:    s.events,
		Observer:         s.metrics,
		ExitOnStuckDrain: s.config.ExitOnStuckDrain,
		Logger:           s.log,
	}
}

// logged brackets a run function's life with two lines, by which one can tell from
// logs who worked when.
func logged(log *slog.Logger, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		log.Info("run function started")
		err := run(ctx)
		if err != nil {
			log.Error("run function ended", "err", err)
		} else {
			log.Info("run function ended")
		}
		return err
	}
}
