package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/electionmetrics"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// job is a controller that an election guards. It does not depend on the election.
type job interface {
	// Warm fills the caches before the process campaigns.
	Warm(ctx context.Context) error
	// Run runs the controller for one term, until ctx ends.
	Run(ctx context.Context) error
	// Close stops what Warm started.
	Close()
}

// election is a row of the table of elections.
type election struct {
	id string
	// perRevision makes an election for each revision.
	perRevision bool
	// lease makes the lock a Lease, regardless of --lock.
	lease bool
	// uncoordinated excludes the election from --election-strategy.
	uncoordinated bool
	// remote runs the controller in a remote cluster too, with a separate election there.
	remote bool
	// predecessor is the lock of the same controller in earlier versions (docs/migration.md). Optional.
	predecessor *leaderelection.Predecessor
	// on reports whether the configuration enables the row. If nil, it is always enabled.
	on func(config Config) bool
	// kinds are custom resources that the API server must serve before the controller warms its caches.
	kinds []schema.GroupVersionResource
	// tagged reports that the controller uses the tags of revisions. The row waits until they are known.
	tagged bool
	// newJob creates the controller. The writes of the client pass the gate of the election.
	newJob func(client kube.Client, config Config, tools tools) (job, error)
	// writes are the writes that a fence guards. They are selected by names or labels. A status has neither, so a missing lock
	// would reject the writes of all clients. Only the gate guards it, unless the user declares it (pilot fence --file, wide:
	// true).
	writes []fence.Guard
}

// tools are the dependencies of a controller other than its client and configuration.
type tools struct {
	log *slog.Logger
	// events writes Events about the controller's objects. They do not pass the gate.
	events *events
	// watcher has the default revision.
	watcher revisions.DefaultWatcher
	// tags has the tags of the revision. It is nil unless the row is tagged.
	tags revisions.Tags
}

// table lists the elections of a server. A new controller is a row here, fields in Config that the row's functions use, its
// permissions in the chart, and a line in docs/controllers.md.
var table = []election{
	{
		id: leaderelection.NamespaceController, newJob: namespaceController, remote: true,
		writes: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{namespace.ConfigMapName}}},
	},
	{
		id: leaderelection.IngressController, newJob: ingressController,
		on: func(c Config) bool { return c.ingress().Mode != ingress.Off },
	},
	{
		id: leaderelection.GatewayStatusController, perRevision: true, lease: true, tagged: true,
		// The lock for all revisions, including istiod, before each revision had an election.
		predecessor: &leaderelection.Predecessor{Name: leaderelection.GatewayStatusController, Lock: leaderelection.LockTypeConfigMap},
		on:          func(c Config) bool { return !c.DisableGatewayAPI && !c.DisableGatewayStatus },
		kinds:       gatewayKinds("gatewayclasses", "gateways", "referencegrants"),
		newJob:      gatewayStatus,
	},
	{
		id: leaderelection.GatewayDeploymentController, perRevision: true, lease: true, tagged: true,
		on:     func(c Config) bool { return !c.DisableGatewayAPI && !c.DisableGatewayDeployment },
		kinds:  gatewayKinds("gatewayclasses", "gateways"),
		newJob: gatewayDeployment, writes: gatewayDeploymentWrites,
	},
	{
		id: leaderelection.Coordinator, lease: true, uncoordinated: true,
		on:     func(c Config) bool { return c.Coordinator },
		newJob: coordinator,
	},
}

// rows returns the rows that the configuration enables.
func (c Config) rows() []election {
	return slices.DeleteFunc(slices.Clone(table), func(row election) bool {
		return c.Remote && !row.remote || row.on != nil && !row.on(c.withDefaults())
	})
}

// Elections returns the names of the elections of a server. The lock names of perRevision have "-<revision>" appended. With
// Disabled there are none.
func Elections(config Config) (shared, perRevision []string) {
	if config.Disabled {
		return nil, nil
	}
	for _, row := range config.rows() {
		if row.perRevision {
			perRevision = append(perRevision, row.id)
		} else {
			shared = append(shared, row.id)
		}
	}
	return shared, perRevision
}

func (row election) lockName(revision string) string {
	if row.perRevision {
		return row.id + "-" + revision
	}
	return row.id
}

func namespaceController(client kube.Client, config Config, tools tools) (job, error) {
	c := config.namespace()
	c.Event, c.Logger = tools.events.Eventf, tools.log
	return namespace.New(client, c)
}

func ingressController(client kube.Client, config Config, tools tools) (job, error) {
	c := config.ingress()
	c.Event, c.Logger = tools.events.Eventf, tools.log
	return ingress.New(client, c)
}

// elect builds the elections of a table.
func (s *site) elect(rows []election) error {
	s.followTags(rows)
	for _, row := range rows {
		le, err := leaderelection.New(s.work, s.electionConfig(row))
		if err != nil {
			return fmt.Errorf("elections (--lease-duration, --renew-deadline, --retry-period, --shutdown-timeout): %w", err)
		}
		log := s.log.With("election", le.Status().Lock)
		client := le.Client()
		if s.config.DisableGate {
			client = s.work
		}
		j, err := row.newJob(client, s.config, s.tools(log))
		if err != nil {
			return err
		}
		le.AddWarmup(s.warm(row, j, le.Status().Lock, log)).AddRunContext(logged(log, j.Run))
		if reads, ok := j.(interface{ Problem() error }); ok {
			le.AddFitnessCheck(func(context.Context) error { return refused(reads.Problem()) })
		}
		s.testFence(le, row)
		if !row.lease && s.lockTypes != nil {
			s.lockTypes.Watch(le)
		}
		s.jobs = append(s.jobs, j)
		s.elections.Add(le)
		s.mine = append(s.mine, le)
		s.metrics.leader.WithLabelValues(le.Status().Lock).Set(0)
		s.metrics.MustRegister(electionmetrics.New(le))
	}
	return nil
}

// refused returns err if the API server refused a list or watch, so that a replica that may read the objects leads. An API server that
// does not respond makes no replica unfit: all of them would be unfit, and would remain it until their caches retry.
func refused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("caches are out of date: %w", err)
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

// warm returns the warm-up of a row. It waits for the kinds and tags that the controller reads.
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
	lock := leaderelection.LockTypeLease
	if !row.lease && s.config.LockType != lockMulti {
		lock = leaderelection.LockType(s.config.LockType)
	}
	c := s.config.Config
	c.ElectionID = row.id
	c.PerRevision = row.perRevision
	c.Lock = lock
	c.Predecessor = row.predecessor
	if s.config.LockType == lockMulti && !row.lease {
		c.Predecessor = &leaderelection.Predecessor{Name: row.lockName(c.Revision), Lock: leaderelection.LockTypeConfigMap, Hold: true}
	}
	c.Coordination = s.config.coordination(row)
	c.DefaultWatcher = s.watcher
	c.EventRecorder = s.events
	c.Observer = s.metrics
	c.Witness = s.witnessOf(row.lockName(c.Revision))
	c.Logger = s.log
	return c
}

// logged logs the start and end of a run function.
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
