package bootstrap

import (
	"context"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pkg/kube"
)

// coordination is how a row's leader is chosen; nil: its candidates settle that among themselves. Those of one revision
// have nothing for a strategy to choose between.
func (c Config) coordination(row election) *leaderelection.Coordination {
	if c.ElectionStrategy == "" || row.perRevision || row.uncoordinated || c.DisableElections {
		return nil
	}
	how := &leaderelection.Coordination{
		Strategy: c.ElectionStrategy, BinaryVersion: leasecandidate.Version(ReadBuild().Version), EmulationVersion: c.EmulationVersion,
	}
	if !c.remote { // a Pod of another cluster can own nothing
		how.PodUID = types.UID(c.PodUID)
	}
	return how
}

// candidateRights are for a LeaseCandidate in each coordinated election, whose name is known to nobody before the Pod is there. Which
// of all LeaseCandidates it is, the fence sees to.
func candidateRights() manifests.Rights {
	return manifests.Rights{Home: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leasecandidates"}, Verbs: []string{"get", "create", "update", "delete", "watch"}},
	}}
}

// coordinatorRights: read candidates and locks, ask and collect the ones, and write who holds the others.
func coordinatorRights(Config) manifests.Rights {
	return manifests.Rights{Home: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "list", "update", "watch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leasecandidates"}, Verbs: []string{"delete", "list", "update", "watch"}},
	}}
}

// coordinator makes the controller that chooses.
func coordinator(client kube.Client, config Config, tools tools) (job, error) {
	// Its requests do not wait for those of the work, of which there are many when a leader begins.
	quiet, err := kube.NewClient(leasecandidate.WithoutWarnings(client.RESTConfig()), kube.WithRateLimit(-1, 0))
	if err != nil {
		return nil, err
	}
	strategies := coordination.Own()
	if config.OldestEmulation {
		strategies = strategies.With(coordination.OldestEmulationVersion, coordination.ByOldestEmulationVersion)
	}
	c, err := coordination.New(coordination.Config{
		Client: quiet.Kube(), Namespace: config.Namespace, EventRecorder: tools.events, Logger: tools.log,
		Strategies: strategies,
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: tools.watcher.GetDefault()}, tools.watcher.HasSynced()
		},
	})
	if err != nil {
		return nil, err
	}
	tools.watcher.AddHandler(func(string) { c.Reconsider() })
	return c, nil
}

// coordinatorLook is how often the coordinator's election is looked at. That costs no request.
const coordinatorLook = time.Second

// followCoordinator tells the coordinated elections of the site whether the coordinator is known to be gone, by what its own
// election shows: nobody leads it. A server that takes no part in that leaves it to the elections to notice.
func (s *site) followCoordinator(ctx context.Context) error {
	ticker := time.NewTicker(coordinatorLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		i := slices.IndexFunc(s.mine, func(le *leaderelection.LeaderElection) bool {
			return le.Status().ElectionID == leaderelection.Coordinator
		})
		now := s.mine[i].Status()
		absent := now.Phase == "following" && !now.Acting
		for _, le := range s.mine {
			if le.Status().Strategy != "" {
				le.SetCoordinatorAbsent(absent)
			}
		}
	}
}

// memberless servers publish nothing: those that elect nobody could lead nothing.
func (c Config) memberless() bool { return c.DisableMember || c.DisableElections }

// memberRights are for a Lease whose name is known to nobody before the Pod is there. Which of all Leases it is, the
// fence sees to. The others' are read by the elections page.
func memberRights() manifests.Rights {
	return manifests.Rights{Home: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch", "delete", "list", "watch"}},
	}}
}

// publish makes the publisher of the site's cluster.
func (s *site) publish() (err error) {
	if s.config.memberless() {
		return nil
	}
	config := members.Config{
		Client: s.own.Kube(), Namespace: s.config.Namespace, Identity: s.config.Identity, State: s.memberState, Logger: s.log,
	}
	if !s.config.remote { // a Pod of another cluster can own nothing
		config.PodUID = types.UID(s.config.PodUID)
	}
	s.member, err = members.New(config)
	return err
}

func (s *site) memberState() members.State {
	state := members.State{Revision: s.config.Revision, Cluster: members.Local, Version: ReadBuild().Version, EmulationVersion: s.config.EmulationVersion}
	if s.config.remote {
		state.Cluster = members.Remote
	}
	for _, le := range s.mine {
		now := le.Status()
		state.Elections = append(state.Elections, members.Election{Name: now.Lock, Candidate: now.Running, Warm: now.Warm, Fit: !now.Unfit, Strategy: now.Strategy})
	}
	slices.SortFunc(state.Elections, func(a, b members.Election) int { return strings.Compare(a.Name, b.Name) })
	return state
}
