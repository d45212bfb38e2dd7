package features

import (
	"os"
	"slices"
	"strings"
	"time"

	"istio.io/pkg/env"
)

// The variables. A new one is registered here, gets a field in Features, and a line in
// parse.
var (
	enableLeaderElection = env.Register("ENABLE_LEADER_ELECTION", true,
		"If false, every controller runs in every replica at once and no lock is touched. For a single replica only.").Var
	revision = env.Register("REVISION", "",
		"The control plane's revision; empty means \"default\".").Var
	podName = env.Register("POD_NAME", "",
		"The process's name in elections, unique among live processes; usually metadata.name by the downward API.").Var
	podUID = env.Register("POD_UID", "",
		"The UID of the Pod that POD_NAME names, to which the member Lease then belongs; usually metadata.uid by the downward API.").Var
	podNamespace = env.Register("POD_NAMESPACE", "istio-system",
		"The namespace of the control plane and its locks; usually metadata.namespace by the downward API.").Var
	clusterID = env.Register("CLUSTER_ID", "Kubernetes",
		"The name of the cluster that the control plane runs in.").Var
	kubeconfig = env.Register("KUBECONFIG", "",
		"Kubeconfig files to merge, separated by colons; empty means the pod's own service account.").Var
	enableWriteGate = env.Register("ENABLE_WRITE_GATE", true,
		"If false, controllers write whoever leads: a process that was stopped for a while sends what it had queued.").Var
	enableMemberLease = env.Register("ENABLE_MEMBER_LEASE", true,
		"If false, the server publishes no Lease that says which elections it could lead.").Var
	enableCoordinator = env.Register("ENABLE_COORDINATOR", false,
		"If true, the server takes part in the election of a coordinator, which names the leaders of coordinated elections.").Var
	electionStrategy = env.Register("ELECTION_STRATEGY", "",
		"By which strategy a coordinator chooses who leads the elections that all revisions share, such as incumbent.dev/DefaultRevision; empty: the candidates settle it.").Var
	enableOldestEmulationVersion = env.Register("ENABLE_OLDEST_EMULATION_VERSION", false,
		"If true, the coordinator also chooses by OldestEmulationVersion, for an API server whose own coordinator is off.").Var
	emulationVersion = env.Register("EMULATION_VERSION", "",
		"The version that the server behaves like in coordinated elections, such as 1.2.0, at most its own; empty means its own.").Var
	enableWriteFence = env.Register("ENABLE_WRITE_FENCE", false,
		"If true, policies in the API server guard what controllers write (pilot fence install), and the server checks that they do.").Var
	enableGatewayAPI = env.Register("PILOT_ENABLE_GATEWAY_API", true,
		"If false, nothing of the Gateway API is served: its two elections do not take place, whatever the variables that begin with this name say.").Var
	enableGatewayAPIStatus = env.Register("PILOT_ENABLE_GATEWAY_API_STATUS", true,
		"If false, no status of GatewayClasses, Gateways and HTTPRoutes is written, and no GatewayClass is made.").Var
	enableGatewayAPIDeployment = env.Register("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", true,
		"If false, no ServiceAccounts, Services and Deployments are made for Gateways.").Var
	enableGatewayAPIClass = env.Register("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", true,
		"If false, the GatewayClass istio is not made where it is missing.").Var
	electionLock = env.Register("LEADER_ELECTION_LOCK", "configmap",
		"What kind of object the locks are: configmap, as istiod's, or lease; multi holds both, to move from one to the other.").Var
	leaseDuration = env.Register("LEADER_ELECTION_LEASE_DURATION", 30*time.Second,
		"How long a candidate waits for a silent leader before it takes over; whole seconds.").Var
	renewDeadline = env.Register("LEADER_ELECTION_RENEW_DEADLINE", 15*time.Second,
		"How long a leader acts after its last acknowledged renewal was sent.").Var
	retryPeriod = env.Register("LEADER_ELECTION_RETRY_PERIOD", 7500*time.Millisecond,
		"How often a leader renews.").Var
)

// all is every variable of ours; istio.io/pkg/env knows those of other packages too.
var all = []env.Var{
	enableLeaderElection, enableWriteGate, enableWriteFence, revision, podName, podNamespace, clusterID, kubeconfig,
	enableGatewayAPI, enableGatewayAPIStatus, enableGatewayAPIDeployment, enableGatewayAPIClass,
	electionLock, leaseDuration, renewDeadline, retryPeriod, enableMemberLease, podUID, enableCoordinator, electionStrategy,
	enableOldestEmulationVersion, emulationVersion,
}

// Flag describes one variable.
type Flag struct {
	Name        string
	Type        string
	Default     string
	Description string
	// Value is the present one, as set or by default; it may be one that FromEnv refuses.
	Value string
	// Set reports whether the environment sets it to anything.
	Set bool
}

// List describes the variables, sorted by name.
func List() []Flag { return list(os.LookupEnv) }

func list(lookup func(string) (string, bool)) []Flag {
	flags := make([]Flag, 0, len(all))
	for _, v := range all {
		f := Flag{Name: v.Name, Type: typeName(v.Type), Default: v.DefaultValue, Description: v.Description}
		f.Value = f.Default
		if value, _ := lookup(v.Name); value != "" {
			f.Value, f.Set = value, true
		}
		flags = append(flags, f)
	}
	slices.SortFunc(flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return flags
}

func typeName(t env.VarType) string {
	switch t {
	case env.BOOL:
		return "boolean"
	case env.INT:
		return "integer"
	case env.FLOAT:
		return "number"
	case env.DURATION:
		return "duration"
	case env.STRING:
		return "string"
	case env.OTHER:
	}
	return "other"
}
