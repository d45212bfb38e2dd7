package leaderelection

import (
	"fmt"
	"log/slog"

	"incumbent.dev/incumbent/internal/environment"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// NewLeaderElection returns an election with a ConfigMap lock, as istiod's function of that name.
// name is the identity of the candidate. If empty, it is "unknown-" and the host name, which two processes on one host share.
// RunContext returns an error if an argument or environment variable is invalid.
func NewLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeConfigMap,
	})
}

// NewLeaseLeaderElection returns an election with a Lease lock. See NewLeaderElection.
func NewLeaseLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeLease,
	})
}

// NewPerRevisionLeaderElection returns an election among the replicas of one revision, with a
// Lease lock of that revision. See NewLeaderElection.
func NewPerRevisionLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision,
		Lock: LockTypeLease, PerRevision: true,
	})
}

// NewLeaderElectionMulticluster returns an election with a ConfigMap lock, in which remote
// candidates run outside the cluster of the lock. See NewLeaderElection.
func NewLeaderElectionMulticluster(namespace, name, electionID, revision string, remote bool, client kube.Client) *LeaderElection {
	return compatible(client, Config{
		Namespace: namespace, Identity: name, ElectionID: electionID, Revision: revision, Lock: LockTypeConfigMap, Remote: remote,
	})
}

// compatible returns an election that uses the environment variables of istiod's constructors, and
// the default watcher that all such elections of a client share.
func compatible(client kube.Client, cfg Config) *LeaderElection {
	if cfg.Identity == "" {
		cfg.Identity = "unknown-" + hostName()
		slog.Default().Warn("no name was given; two processes on this host would have the same identity", "election", cfg.lockName(), "identity", cfg.Identity)
	}
	cfg, err := cfg.fromEnvironment()
	l := newElection(client, cfg)
	l.sharing = !cfg.PerRevision
	if err != nil { // it can be the cause of an error that validate found
		l.invalid = fmt.Errorf("election %q in namespace %q: %w", l.cfg.lockName(), l.cfg.Namespace, err)
	}
	return l
}

// fromEnvironment returns c with the values of the environment that istiod's constructors read. Without a variable, elections are
// enabled.
func (c Config) fromEnvironment() (Config, error) {
	var r environment.Reader
	c.Disabled = !r.Bool(environment.EnableLeaderElection, true)
	c.LeaseDuration = r.Duration(environment.LeaseDuration, c.LeaseDuration)
	c.RenewDeadline = r.Duration(environment.RenewDeadline, c.RenewDeadline)
	c.RetryPeriod = r.Duration(environment.RetryPeriod, c.RetryPeriod)
	return c, r.Err()
}

// LocationPrioritizedComparison reports whether l outranks a holder with the key
// currentLeaderRevision. It uses the current default revision. An election of New reads it from
// the DefaultWatcher of its Config, even if the election does not run. Elections of the other
// constructors share a watcher that runs while one of them runs. Before its first run such an
// election has no default revision, and afterwards it uses the last one.
func LocationPrioritizedComparison(currentLeaderRevision string, l *LeaderElection) bool {
	if l.cfg.PerRevision {
		return false
	}
	return k8sleaderelection.Outranks(l.cfg.key(), currentLeaderRevision, l.currentDefault())
}

// currentDefault returns the default revision that LocationPrioritizedComparison uses.
func (l *LeaderElection) currentDefault() k8sleaderelection.DefaultRevision {
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
