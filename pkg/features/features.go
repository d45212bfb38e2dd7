package features

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"istio.io/pkg/env"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Features has the values of the environment variables. Each field's comment begins with the
// variable and its default.
type Features struct {
	// EnableLeaderElection: ENABLE_LEADER_ELECTION, true. If false, every run function starts at once.
	EnableLeaderElection bool
	// EnableWriteGate: ENABLE_WRITE_GATE, true. If false, controllers may write whoever leads.
	EnableWriteGate bool
	// EnableWriteFence: ENABLE_WRITE_FENCE, false. If true, policies guard what controllers write.
	EnableWriteFence bool
	// EnableMemberLease: ENABLE_MEMBER_LEASE, true. If false, the server does not publish which elections it could lead.
	EnableMemberLease bool
	// EnableCoordinator: ENABLE_COORDINATOR, false. If true, the server may lead the election of a coordinator.
	EnableCoordinator bool
	// ElectionStrategy: ELECTION_STRATEGY, "". The strategy by which a coordinator chooses the leaders of shared elections;
	// "": no coordinator does.
	ElectionStrategy string
	// EnableOldestEmulationVersion: ENABLE_OLDEST_EMULATION_VERSION, false. If true, the server's coordinator also chooses by
	// OldestEmulationVersion.
	EnableOldestEmulationVersion bool
	// EmulationVersion: EMULATION_VERSION, "". The version that the server behaves like in coordinated elections; "": its own.
	EmulationVersion string
	// EnableGatewayAPI: PILOT_ENABLE_GATEWAY_API, true. If false, nothing of the Gateway API is served, whatever the next
	// three say.
	EnableGatewayAPI bool
	// EnableGatewayAPIStatus: PILOT_ENABLE_GATEWAY_API_STATUS, true. If false, no status of its objects is written, and no
	// GatewayClass is made.
	EnableGatewayAPIStatus bool
	// EnableGatewayAPIDeploymentController: PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER, true. If false, nothing is
	// deployed for Gateways.
	EnableGatewayAPIDeploymentController bool
	// EnableGatewayAPIGatewayClassController: PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER, true. If false, no
	// GatewayClass is made.
	EnableGatewayAPIGatewayClassController bool
	// Revision: REVISION, "". The control plane's revision; elections count "" as "default".
	Revision string
	// PodName: POD_NAME, "". This process's identity in elections.
	PodName string
	// PodUID: POD_UID, "". The UID of the Pod called PodName.
	PodUID string
	// PodNamespace: POD_NAMESPACE, "istio-system". The namespace of this control plane and its locks.
	PodNamespace string
	// ClusterID: CLUSTER_ID, "Kubernetes". The name of the cluster that this process runs in.
	ClusterID string
	// Kubeconfig: KUBECONFIG, "". A list of files as kubectl takes it.
	Kubeconfig string
	// ElectionLock: LEADER_ELECTION_LOCK, "configmap". It may be "multi" or "lease" too, and is in lower case here.
	ElectionLock string
	// LeaseDuration, RenewDeadline and RetryPeriod: LEADER_ELECTION_LEASE_DURATION, 30s; LEADER_ELECTION_RENEW_DEADLINE,
	// 15s; LEADER_ELECTION_RETRY_PERIOD, 7.5s. The elections' timing. Each is positive; whether they fit together, the
	// election checks.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// FromEnv reads the environment. A variable that is set to nothing counts as not set.
// The error names every variable with a wrong value, and what it should be.
func FromEnv() (Features, error) { return parse(os.LookupEnv) }

func parse(lookup func(string) (string, bool)) (Features, error) {
	r := reader{lookup: lookup}
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
	return f, errors.Join(r.errs...)
}

// reader turns texts to values and collects what is wrong with them.
type reader struct {
	lookup func(string) (string, bool)
	errs   []error
}

func (r *reader) raw(v env.Var) string {
	if value, _ := r.lookup(v.Name); value != "" {
		return value
	}
	return v.DefaultValue
}

func (r *reader) wrong(v env.Var, err error) {
	r.errs = append(r.errs, fmt.Errorf("environment variable %s=%q: %w", v.Name, r.raw(v), err))
}

func (r *reader) boolean(v env.Var) bool {
	value, err := strconv.ParseBool(r.raw(v))
	if err != nil {
		r.wrong(v, errors.New("give true or false"))
	}
	return value
}

func (r *reader) duration(v env.Var) time.Duration {
	value, err := time.ParseDuration(r.raw(v))
	if err != nil || value <= 0 {
		r.wrong(v, errors.New("give a positive duration with its unit, such as 30s"))
	}
	return value
}

// text reads a text and, unless it is empty, has it checked.
func (r *reader) text(v env.Var, check func(string) []string) string {
	value := r.raw(v)
	if value == "" || check == nil {
		return value
	}
	if problems := check(value); len(problems) > 0 {
		r.wrong(v, errors.New(strings.Join(problems, "; ")))
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
