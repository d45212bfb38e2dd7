package leaderelection

import (
	"fmt"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// NewLeaderElection takes part in an election with a ConfigMap lock. An empty name
// means "unknown-" and the host's name. Wrong arguments are reported by RunContext.
func NewLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeConfigMap,
	})
}

// NewLeaseLeaderElection is NewLeaderElection with a Lease lock.
func NewLeaseLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeLease,
	})
}

// NewPerRevisionLeaderElection takes part in an election among the replicas of one
// revision, with a Lease lock of that revision.
func NewPerRevisionLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision,
		Lock: LockTypeLease, PerRevision: true,
	})
}

// NewLeaderElectionMulticluster is NewLeaderElection for a candidate that may run
// outside the cluster whose lock it is.
func NewLeaderElectionMulticluster(namespace, name, electionID, revision string, remote bool, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeConfigMap, Remote: remote,
	})
}

// compatible makes an election with what istiod's constructors take from the
// environment, and the watcher that all of a client share.
func compatible(client kube.Client, cfg Config) *LeaderElection {
	cfg, err := cfg.fromEnvironment(environment)
	l := newElection(client, cfg)
	l.sharing = !cfg.PerRevision
	if err != nil { // before what follows from it
		l.invalid = fmt.Errorf("election %q in namespace %q: %w", l.cfg.lockName(), l.cfg.Namespace, err)
	}
	return l
}

// LocationPrioritizedComparison reports whether l goes before a holder whose record
// carries the key currentLeaderRevision, by the default revision that is known now. An
// election made by New asks its Config's DefaultWatcher, whether it runs or not. One made by
// a constructor with istiod's signature shares a watcher that runs only while such elections
// of its client do: it knows no default before its first run, and afterwards the last one.
func LocationPrioritizedComparison(currentLeaderRevision string, l *LeaderElection) bool {
	if l.cfg.PerRevision {
		return false
	}
	return k8sleaderelection.Outranks(l.cfg.key(), currentLeaderRevision, l.presentDefault())
}

// presentDefault is the default by which l ranks, or would if it ran. The watcher that
// elections of a client share runs with them: before, it knows nothing.
func (l *LeaderElection) presentDefault() k8sleaderelection.DefaultRevision {
	if !l.sharing {
		if d := l.knownDefault(); d.Synced {
			return d
		}
	}
	if e := l.elector.Load(); e != nil {
		return e.Status().Default
	}
	return k8sleaderelection.DefaultRevision{}
}
