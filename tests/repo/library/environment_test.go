package library

import (
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/features"
	"incumbent.dev/incumbent/pkg/kube"
)

// istioStyle returns an election of each constructor with istiod's signature.
func istioStyle(name string, client kube.Client) map[string]*leaderelection.LeaderElection {
	const namespace, id, revision = "istio-system", "an-election", "stable"
	return map[string]*leaderelection.LeaderElection{
		"ConfigMap":    leaderelection.NewLeaderElection(namespace, name, id, revision, client),
		"Lease":        leaderelection.NewLeaseLeaderElection(namespace, name, id, revision, client),
		"per revision": leaderelection.NewPerRevisionLeaderElection(namespace, name, id, revision, client),
		"multicluster": leaderelection.NewLeaderElectionMulticluster(namespace, name, id, revision, false, client),
	}
}

// pkg/features registers the same variables with the same defaults as the constructors.
func TestConstructors_SameVariablesAsFeatures(t *testing.T) {
	registered := map[string]features.Flag{}
	for _, flag := range features.List() {
		registered[flag.Name] = flag
	}
	for name, value := range map[string]string{
		"ENABLE_LEADER_ELECTION":         "true",
		"LEADER_ELECTION_LEASE_DURATION": leaderelection.DefaultLeaseDuration.String(),
		"LEADER_ELECTION_RENEW_DEADLINE": leaderelection.DefaultRenewDeadline.String(),
		"LEADER_ELECTION_RETRY_PERIOD":   leaderelection.DefaultRetryPeriod.String(),
	} {
		if got := registered[name].Default; got != value {
			t.Errorf("%s is registered with the default %q, and the constructors take %q", name, got, value)
		}
	}
}
