package features

import (
	"cmp"
	"os"
	"strings"
	"time"

	"istio.io/pkg/env"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/environment"
)

// Features has the values of the environment variables. The comment of a field has the variable and its default.
type Features struct {
	// EnableLeaderElection: ENABLE_LEADER_ELECTION, true. If false, every run function starts immediately.
	EnableLeaderElection bool
	// EnableWriteGate: ENABLE_WRITE_GATE, true. If false, controllers can write without holding the lock.
	EnableWriteGate bool
	// EnableWriteFence: ENABLE_WRITE_FENCE, false. If true, the server tests the fence.
	EnableWriteFence bool
	// EnableMemberLease: ENABLE_MEMBER_LEASE, true. If false, the server does not publish which elections it can lead.
	EnableMemberLease bool
	// EnableCoordinator: ENABLE_COORDINATOR, false. If true, the server can be the coordinator.
	EnableCoordinator bool
	// ElectionStrategy: ELECTION_STRATEGY, "". The strategy that a coordinator uses to choose the leaders of shared elections.
	// If empty, they are not coordinated.
	ElectionStrategy string
	// EnableOldestEmulationVersion: ENABLE_OLDEST_EMULATION_VERSION, false. If true, the coordinator supports
	// OldestEmulationVersion.
	EnableOldestEmulationVersion bool
	// EmulationVersion: EMULATION_VERSION, "". The emulation version in coordinated elections. If empty, the server's version.
	EmulationVersion string
	// EnableGatewayAPI: PILOT_ENABLE_GATEWAY_API, true. If false, the controllers of the Gateway API are disabled, regardless of
	// the next three fields.
	EnableGatewayAPI bool
	// EnableGatewayAPIStatus: PILOT_ENABLE_GATEWAY_API_STATUS, true. If false, the server writes no status and creates no
	// GatewayClass.
	EnableGatewayAPIStatus bool
	// EnableGatewayAPIDeploymentController: PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER, true. If false, the
	// server deploys nothing for Gateways.
	EnableGatewayAPIDeploymentController bool
	// EnableGatewayAPIGatewayClassController: PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER, true. If false, the
	// server creates no GatewayClass.
	EnableGatewayAPIGatewayClassController bool
	// Revision: REVISION, "". The revision of the control plane. Empty means "default".
	Revision string
	// PodName: POD_NAME, "". The identity of this process in elections.
	PodName string
	// PodUID: POD_UID, "". The UID of the Pod PodName.
	PodUID string
	// PodNamespace: POD_NAMESPACE, "istio-system". The namespace of the control plane and its locks.
	PodNamespace string
	// ClusterID: CLUSTER_ID, "Kubernetes". The name of the cluster of this process.
	ClusterID string
	// Kubeconfig: KUBECONFIG, "". A list of files, as for kubectl.
	Kubeconfig string
	// ElectionLock: LEADER_ELECTION_LOCK, "configmap". One of "configmap", "multi" and "lease", in lower case.
	ElectionLock string
	// LeaseDuration, RenewDeadline and RetryPeriod: LEADER_ELECTION_LEASE_DURATION, 30s; LEADER_ELECTION_RENEW_DEADLINE,
	// 15s; LEADER_ELECTION_RETRY_PERIOD, 7.5s. The timing of elections. Each is positive; the election checks their
	// relation.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// FromEnv reads the environment. An empty variable counts as not set. The error names every variable with an invalid
// value and describes valid values.
func FromEnv() (Features, error) {
	var r reader
	f := Features{
		EnableLeaderElection: r.boolean(enableLeaderElection),
		EnableWriteGate:      r.boolean(enableWriteGate),
		EnableWriteFence:     r.boolean(enableWriteFence),
		EnableMemberLease:    r.boolean(enableMemberLease),
		EnableCoordinator:    r.boolean(enableCoordinator),
		ElectionStrategy:     r.text(electionStrategy, nil),
		EmulationVersion:     r.text(emulationVersion, nil),
		EnableGatewayAPI:     r.boolean(enableGatewayAPI),

		EnableOldestEmulationVersion:           r.boolean(enableOldestEmulationVersion),
		EnableGatewayAPIStatus:                 r.boolean(enableGatewayAPIStatus),
		EnableGatewayAPIDeploymentController:   r.boolean(enableGatewayAPIDeployment),
		EnableGatewayAPIGatewayClassController: r.boolean(enableGatewayAPIClass),

		Revision:      r.text(revision, validation.IsDNS1123Label),
		PodName:       r.text(podName, validation.IsDNS1123Subdomain),
		PodUID:        r.text(podUID, nil),
		PodNamespace:  r.text(podNamespace, validation.IsDNS1123Label),
		ClusterID:     r.text(clusterID, nil),
		Kubeconfig:    r.text(kubeconfig, nil),
		ElectionLock:  strings.ToLower(r.text(electionLock, oneOf("configmap", "multi", "lease"))),
		LeaseDuration: r.duration(leaseDuration),
		RenewDeadline: r.duration(renewDeadline),
		RetryPeriod:   r.duration(retryPeriod),
	}
	return f, r.Err()
}

// reader reads registered variables.
type reader struct{ environment.Reader }

func (r *reader) boolean(v env.Var) bool { return r.Bool(v.Name, v.DefaultValue == "true") }

func (r *reader) duration(v env.Var) time.Duration {
	fallback, _ := time.ParseDuration(v.DefaultValue) // registered with a duration
	return r.Duration(v.Name, fallback)
}

// text reads a text and checks it unless it is empty.
func (r *reader) text(v env.Var, check func(string) []string) string {
	value := cmp.Or(os.Getenv(v.Name), v.DefaultValue)
	if value == "" || check == nil {
		return value
	}
	if problems := check(value); len(problems) > 0 {
		r.Wrong(v.Name, value, strings.Join(problems, "; "))
	}
	return value
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
