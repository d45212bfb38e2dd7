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

// Features is what the environment says.
type Features struct {
	// EnableLeaderElection is false when every run function should start at once.
	EnableLeaderElection bool
	// EnableWriteGate is false when controllers may write whoever leads.
	EnableWriteGate bool
	// EnableWriteFence is true when policies guard what controllers write.
	EnableWriteFence bool
	// EnableMemberLease is false when the server publishes nothing of what it could lead.
	EnableMemberLease bool
	// EnableCoordinator is true when the server may lead the election of a coordinator.
	EnableCoordinator bool
	// ElectionStrategy is the one by which a coordinator chooses the leaders of shared elections; "" when none does.
	ElectionStrategy string
	// EnableOldestEmulationVersion is true when the server's coordinator chooses by OldestEmulationVersion, too.
	EnableOldestEmulationVersion bool
	// EmulationVersion is what the server behaves like in coordinated elections; "" means its own version.
	EmulationVersion string
	// EnableGatewayAPI is false when nothing of the Gateway API is served, whatever the next three say.
	EnableGatewayAPI bool
	// EnableGatewayAPIStatus, EnableGatewayAPIDeploymentController and
	// EnableGatewayAPIGatewayClassController are false when no status of its objects is written,
	// nothing is deployed for Gateways, and no GatewayClass is made.
	EnableGatewayAPIStatus, EnableGatewayAPIDeploymentController, EnableGatewayAPIGatewayClassController bool
	// Revision of this control plane, "" for the one without a name.
	Revision string
	// PodName is this process's identity, "" when the environment does not say.
	PodName string
	// PodUID is that of the Pod called PodName, "" when the environment does not say.
	PodUID string
	// PodNamespace is where this control plane and its locks live.
	PodNamespace string
	// ClusterID is the name of the cluster that this process runs in.
	ClusterID string
	// Kubeconfig is a list of files as kubectl takes it; "" when not set.
	Kubeconfig string
	// ElectionLock is "configmap", "multi" or "lease".
	ElectionLock string
	// LeaseDuration, RenewDeadline and RetryPeriod are the elections' timing. Each is
	// positive; how they relate is for the election to judge.
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
