package features

import (
	"os"
	"slices"
	"strings"

	"istio.io/pkg/env"

	"incumbent.dev/incumbent/internal/environment"
)

// A new variable is registered here and gets a field in Features and a line in FromEnv.
var (
	enableLeaderElection = register(environment.EnableLeaderElection, true,
		"If false, every replica runs all controllers without locks. Only for a single replica.")
	revision = register("REVISION", "",
		"The revision of the control plane. Empty means \"default\".")
	podName = register("POD_NAME", "",
		"The identity of the process in elections, unique among live processes. Usually metadata.name from the downward API.")
	podUID = register("POD_UID", "",
		"The UID of the Pod POD_NAME, which owns the member Lease. Usually metadata.uid from the downward API.")
	podNamespace = register("POD_NAMESPACE", "istio-system",
		"The namespace of the control plane and its locks. Usually metadata.namespace from the downward API.")
	clusterID = register("CLUSTER_ID", "Kubernetes",
		"The name of the cluster of the control plane.")
	kubeconfig = register("KUBECONFIG", "",
		"Kubeconfig files to merge, separated by colons. If empty, the service account of the pod.")
	enableWriteGate = register("ENABLE_WRITE_GATE", true,
		"If false, controllers can write without holding the lock; a process that resumes after a pause may send queued writes.")
	enableMemberLease = register("ENABLE_MEMBER_LEASE", true,
		"If false, the server does not publish a Lease with the elections that it can lead.")
	enableCoordinator = register("ENABLE_COORDINATOR", false,
		"If true, the server can be the coordinator, which chooses the leaders of coordinated elections.")
	electionStrategy = register("ELECTION_STRATEGY", "",
		"Strategy that a coordinator uses to choose the leaders of shared elections, for example incumbent.dev/DefaultRevision. If empty, the elections are not coordinated.")
	enableOldestEmulationVersion = register("ENABLE_OLDEST_EMULATION_VERSION", false,
		"If true, the coordinator supports the strategy OldestEmulationVersion, for API servers without a coordinator.")
	emulationVersion = register("EMULATION_VERSION", "",
		"The emulation version of the server in coordinated elections, for example 1.2.0, at most its own version. If empty, its own version.")
	enableWriteFence = register("ENABLE_WRITE_FENCE", false,
		"If true, the server tests whether the fence (pilot fence install) is in effect for the writes of its controllers.")
	enableGatewayAPI = register("PILOT_ENABLE_GATEWAY_API", true,
		"If false, both controllers of the Gateway API are disabled, regardless of the variables that begin with this name.")
	enableGatewayAPIStatus = register("PILOT_ENABLE_GATEWAY_API_STATUS", true,
		"If false, the server does not write the status of GatewayClasses, Gateways and routes, and does not create a GatewayClass.")
	enableGatewayAPIDeployment = register("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", true,
		"If false, the server does not create ServiceAccounts, Services and Deployments for Gateways.")
	enableGatewayAPIClass = register("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", true,
		"If false, the server does not create a missing GatewayClass istio.")
	electionLock = register("LEADER_ELECTION_LOCK", "configmap",
		"Type of the locks: configmap (as in istiod), lease, or multi (both, while migrating).")
	leaseDuration = register(environment.LeaseDuration, environment.DefaultLeaseDuration,
		"Time after which a candidate acquires a lock that is not renewed. Whole seconds.")
	renewDeadline = register(environment.RenewDeadline, environment.DefaultRenewDeadline,
		"How long a leader may act after it sent its last acknowledged renewal.")
	retryPeriod = register(environment.RetryPeriod, environment.DefaultRetryPeriod,
		"Interval between renewals of a leader.")
)

// all lists the variables of this package. istio.io/pkg/env also has variables of other packages.
var all []env.Var

func register[T env.Parseable](name string, value T, description string) env.Var {
	v := env.Register(name, value, description).Var
	all = append(all, v)
	return v
}

// Flag describes one variable.
type Flag struct {
	// Name, Type, Default and Description document the variable.
	Name        string
	Type        string
	Default     string
	Description string
	// Value is the current value or the default. FromEnv may reject it.
	Value string
	// Set reports whether the environment contains a value.
	Set bool
}

// List returns the variables, sorted by name.
func List() []Flag {
	flags := make([]Flag, 0, len(all))
	for _, v := range all {
		f := Flag{Name: v.Name, Type: typeNames[v.Type], Default: v.DefaultValue, Description: v.Description}
		f.Value = f.Default
		if value := os.Getenv(v.Name); value != "" {
			f.Value, f.Set = value, true
		}
		flags = append(flags, f)
	}
	slices.SortFunc(flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return flags
}

// typeNames has the names of the types of the variables above.
var typeNames = map[env.VarType]string{env.BOOL: "boolean", env.DURATION: "duration", env.STRING: "string"}
