package leaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/features"
	"incumbent.dev/incumbent/pkg/kube"
)

// NewLeaderElection takes part in an election with a ConfigMap lock. An empty name
// means "unknown-" and the host's name. Wrong arguments are reported by RunContext.
func NewLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision})
}

// NewLeaseLeaderElection is NewLeaderElection with a Lease lock.
func NewLeaseLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LeaseLock})
}

// NewPerRevisionLeaderElection takes part in an election among the replicas of one
// revision, with a Lease lock of that revision.
func NewPerRevisionLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision,
		Lock: LeaseLock, PerRevision: true,
	})
}

// NewLeaderElectionMulticluster is NewLeaderElection for a candidate that may run
// outside the cluster whose lock it is.
func NewLeaderElectionMulticluster(namespace, name, electionID, revision string, remote bool, client kube.Client) *LeaderElection {
	return compatible(client, Config{Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Remote: remote})
}

// compatible makes an election with what istiod's constructors take from the
// environment: whether elections are on, and the watcher that all of a client share.
func compatible(client kube.Client, cfg Config) *LeaderElection {
	flags, err := features.FromEnv()
	cfg.Disabled = !flags.EnableLeaderElection
	cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = flags.LeaseDuration, flags.RenewDeadline, flags.RetryPeriod
	l := newElection(client, cfg)
	l.sharing = !cfg.PerRevision
	if l.invalid == nil {
		l.invalid = err
	}
	return l
}

// LocationPrioritizedComparison reports whether l goes before a holder whose record
// carries the key currentLeaderRevision, by the default revision that l knows.
func LocationPrioritizedComparison(currentLeaderRevision string, l *LeaderElection) bool {
	if l.cfg.PerRevision {
		return false
	}
	return k8sleaderelection.Outranks(l.cfg.key(), currentLeaderRevision, l.defaultRevision())
}

// defaultRevision is the one that l ranks by.
func (l *LeaderElection) defaultRevision() k8sleaderelection.DefaultRevision {
	if e := l.elector.Load(); e != nil {
		return e.Status().Default
	}
	return k8sleaderelection.DefaultRevision{}
}
