package bootstrap

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
)

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
