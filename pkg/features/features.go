package features

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"istio.io/pkg/env"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/environment"
)

// Features has the values of the environment variables. Method variables has their names, defaults and meaning.
type Features struct {
	// The switches of elections and of their guards.
	EnableLeaderElection, EnableWriteGate, EnableWriteFence, EnableMemberLease, EnableCoordinator, EnableOldestEmulationVersion bool
	// The switches of the controllers of the Gateway API.
	EnableGatewayAPI, EnableGatewayAPIStatus, EnableGatewayAPIDeploymentController, EnableGatewayAPIGatewayClassController bool
	// The identity of the process, its Pod and its cluster.
	Revision, PodName, PodUID, PodNamespace, ClusterID, Kubeconfig string
	// The namespace of the gateway with the addresses for Ingresses, or "".
	IngressNamespace string
	// The lock type, the strategy of the coordinator and the version for it.
	ElectionLock, ElectionStrategy, EmulationVersion string
	// The timing of elections. Each is positive. The election checks their relation.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// variables returns the variables with the fields that they set. A new variable is one entry here and one field.
func (f *Features) variables() []variable {
	return []variable{
		boolean(&f.EnableLeaderElection, environment.EnableLeaderElection, true,
			"If false, every replica runs all controllers without locks. Only for a single replica."),
		boolean(&f.EnableWriteGate, "ENABLE_WRITE_GATE", true,
			"If false, controllers can write without holding the lock; a process that resumes after a pause may send queued writes."),
		boolean(&f.EnableWriteFence, "ENABLE_WRITE_FENCE", false,
			"If true, the server tests whether the fence (pilot fence install) is in effect for the writes of its controllers."),
		boolean(&f.EnableMemberLease, "ENABLE_MEMBER_LEASE", true,
			"If false, the server does not publish a Lease with the elections that it can lead."),
		boolean(&f.EnableCoordinator, "ENABLE_COORDINATOR", false,
			"If true, the server can be the coordinator, which chooses the leaders of coordinated elections."),
		text(&f.ElectionStrategy, "ELECTION_STRATEGY", "", nil,
			"Strategy that a coordinator uses to choose the leaders of shared elections, for example incumbent.dev/DefaultRevision. If empty, the elections are not coordinated."),
		text(&f.EmulationVersion, "EMULATION_VERSION", "", nil,
			"The emulation version of the server in coordinated elections, for example 1.2.0, at most its own version. If empty, its own version."),
		boolean(&f.EnableGatewayAPI, "PILOT_ENABLE_GATEWAY_API", true,
			"If false, both controllers of the Gateway API are disabled, regardless of the variables that begin with this name."),
		boolean(&f.EnableOldestEmulationVersion, "ENABLE_OLDEST_EMULATION_VERSION", false,
			"If true, the coordinator supports the strategy OldestEmulationVersion, for API servers without a coordinator."),
		boolean(&f.EnableGatewayAPIStatus, "PILOT_ENABLE_GATEWAY_API_STATUS", true,
			"If false, the server does not write the status of GatewayClasses, Gateways and routes, and does not create a GatewayClass."),
		boolean(&f.EnableGatewayAPIDeploymentController, "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", true,
			"If false, the server does not create ServiceAccounts, Services and Deployments for Gateways."),
		boolean(&f.EnableGatewayAPIGatewayClassController, "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", true,
			"If false, the server does not create a missing GatewayClass istio."),
		text(&f.Revision, "REVISION", "", validation.IsDNS1123Label, "The revision of the control plane. Empty means \"default\"."),
		text(&f.PodName, "POD_NAME", "", validation.IsDNS1123Subdomain,
			"The identity of the process in elections, unique among live processes. Usually metadata.name from the downward API."),
		text(&f.PodUID, "POD_UID", "", nil,
			"The UID of the Pod POD_NAME, which owns the member Lease. Usually metadata.uid from the downward API."),
		text(&f.PodNamespace, "POD_NAMESPACE", "istio-system", validation.IsDNS1123Label,
			"The namespace of the control plane and its locks. Usually metadata.namespace from the downward API."),
		text(&f.IngressNamespace, "K8S_INGRESS_NS", "", validation.IsDNS1123Label,
			"The namespace of --ingress-service and --ingress-selector. If empty, the namespace of the control plane."),
		text(&f.ClusterID, "CLUSTER_ID", "Kubernetes", nil, "The name of the cluster of the control plane."),
		text(&f.Kubeconfig, "KUBECONFIG", "", nil, "Kubeconfig files to merge, separated by colons. If empty, the service account of the pod."),
		text(&f.ElectionLock, "LEADER_ELECTION_LOCK", "configmap", oneOf("configmap", "multi", "lease"),
			"Type of the locks: configmap (as in istiod), lease, or multi (both, while migrating)."),
		duration(&f.LeaseDuration, environment.LeaseDuration, environment.DefaultLeaseDuration,
			"Time after which a candidate acquires a lock that is not renewed. Whole seconds."),
		duration(&f.RenewDeadline, environment.RenewDeadline, environment.DefaultRenewDeadline,
			"How long a leader may act after it sent its last acknowledged renewal."),
		duration(&f.RetryPeriod, environment.RetryPeriod, environment.DefaultRetryPeriod, "Interval between renewals of a leader."),
	}
}

// FromEnv reads the environment. An empty variable counts as not set. The error names every variable with an invalid
// value and describes valid values.
func FromEnv() (f Features, _ error) {
	var r environment.Reader
	for _, v := range f.variables() {
		v.read(&r)
	}
	f.ElectionLock = strings.ToLower(f.ElectionLock)
	return f, r.Err()
}

// variable is a registered variable. read sets its field.
type variable struct {
	env.Var
	read func(*environment.Reader)
}

func boolean(field *bool, name string, fallback bool, description string) variable {
	return variable{env.Register(name, fallback, description).Var, func(r *environment.Reader) { *field = r.Bool(name, fallback) }}
}

func duration(field *time.Duration, name string, fallback time.Duration, description string) variable {
	return variable{env.Register(name, fallback, description).Var, func(r *environment.Reader) { *field = r.Duration(name, fallback) }}
}

// text returns a variable with a text. If check is not nil, it checks the text unless it is empty.
func text(field *string, name, fallback string, check func(string) []string, description string) variable {
	return variable{env.Register(name, fallback, description).Var, func(r *environment.Reader) {
		*field = cmp.Or(os.Getenv(name), fallback)
		if *field == "" || check == nil {
			return
		}
		if problems := check(*field); len(problems) > 0 {
			r.Wrong(name, *field, strings.Join(problems, "; "))
		}
	}}
}

func oneOf(words ...string) func(string) []string {
	return func(value string) []string {
		for _, word := range words {
			if strings.EqualFold(value, word) {
				return nil
			}
		}
		return []string{"give one of " + strings.Join(words, ", ")}
	}
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
	var flags []Flag
	for _, v := range new(Features).variables() {
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
