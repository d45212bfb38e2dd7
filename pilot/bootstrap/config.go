package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/istiolog"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// Config is the configuration of a Server. Errors name the flags of cmd/pilot.
type Config struct {
	// Config has what the elections have in common: Namespace, Identity, Revision, the timing, Disabled and so on. The server sets the
	// fields that differ between elections, its watchers and its observers. AtRemote sets Remote. StopLimit is 20 s if it is 0. The whole stop takes a few
	// seconds more at most. If Logger is nil, the server uses Istio's log.
	leaderelection.Config

	// Kubernetes locates the API server.
	Kubernetes kube.Source
	// RESTConfig replaces Kubernetes if set.
	RESTConfig *rest.Config
	// RemoteKubeconfig is the kubeconfig of a remote cluster. If empty, there is none. Controllers that support remote
	// clusters also run there. Their elections are in the namespace of the same name in that cluster, and candidates of
	// that cluster outrank this server.
	RemoteKubeconfig string
	// QPS and Burst limit the requests of the controllers to each cluster. A negative QPS means no limit. Elections use
	// another client without a limit. 0 means 40 and 60.
	QPS   float32
	Burst int

	// PodUID is the UID of the Pod Identity, which owns the objects that the server publishes about itself. Empty if the
	// server does not run in a Pod.
	PodUID string
	// DisableMember disables the Lease with the elections that the server can lead (package members).
	DisableMember bool
	// ClusterID is the name of the cluster in the log.
	ClusterID string

	// Address is the listen address for health, metrics and the state of elections.
	Address string
	// DebugAddress is the listen address for the elections page (package page). If empty, there is no page.
	DebugAddress string
	// CABundle is the file that the namespace controller copies to every namespace.
	CABundle string
	// ExcludedNamespaces get no bundle. If nil, the default list of the controller.
	ExcludedNamespaces []string
	// DiscoverySelectors are label selectors of namespaces. Only namespaces that match one get the bundle. If empty, all match.
	DiscoverySelectors []string

	// IngressMode and IngressClass select the Ingresses that get a status. With mode OFF there is no election; see
	// ingress.Mode. Empty means STRICT and "istio".
	IngressMode, IngressClass string
	// IngressService is the Service with the addresses for Ingresses, as NAME or NAMESPACE/NAME. If empty, istio-ingressgateway.
	// IngressSelector is the value of the label istio of Pods. If set, Ingresses get the addresses of their nodes instead.
	// IngressNamespace is the namespace of a Service without one and of these Pods. If empty, Namespace.
	IngressService, IngressSelector, IngressNamespace string

	// DisableGatewayAPI disables both controllers of the Gateway API. DisableGatewayStatus and DisableGatewayDeployment
	// disable one of them. With DisableGatewayClass the server does not create the GatewayClass istio.
	DisableGatewayAPI, DisableGatewayStatus, DisableGatewayDeployment, DisableGatewayClass bool

	// GatewayOverlayFields lists more fields that the overlays of Gateways may change (gatewaydeploy.Config).
	GatewayOverlayFields []string
	// GatewayObjects lists optional objects that Gateways get (gatewaydeploy.Config).
	GatewayObjects []string

	// LockType is "configmap", "lease" or "multi" (both, while migrating). Empty means configmap.
	LockType string
	// Coordinator makes the server a candidate for the coordinator, which chooses the leaders of coordinated elections in
	// the namespace (package coordination).
	Coordinator bool
	// ElectionStrategy is the strategy that a coordinator uses to choose the leaders of shared elections. If empty, there is
	// no coordination. It requires LockType "lease".
	ElectionStrategy string
	// OldestEmulation adds the strategy OldestEmulationVersion to the coordinator. An API server with the feature
	// CoordinatedLeaderElection implements it itself.
	OldestEmulation bool
	// EmulationVersion is the emulation version in coordinated elections: a semantic version without v, at most the version
	// of the server. Empty means the version of the server.
	EmulationVersion string
	// DisableGate gives controllers a client without a gate.
	DisableGate bool
	// Fence enables the self-test of the fence (package internal/fence/install). The server tests whether the policies in
	// the API server are in effect, at its start and whenever a term begins or ends.
	Fence bool
	// WitnessMode is the witness that releases the locks after the process has ended: WitnessParent, WitnessSocket or
	// WitnessNone. Empty means none. The caller calls Supervise before New.
	WitnessMode string
	// WitnessSocket is the path of the socket for WitnessSocket.
	WitnessSocket string

	// Profiling serves Go profiles at Address, under /debug/pprof/.
	Profiling bool

	// fenceEvery is the interval of the fence's self-test, for tests.
	fenceEvery time.Duration
}

const (
	defaultQPS       = 40
	defaultBurst     = 60
	defaultStopLimit = 20 * time.Second
)

func (c Config) withDefaults() Config {
	c.QPS = cmp.Or(c.QPS, defaultQPS)
	c.Burst = cmp.Or(c.Burst, defaultBurst)
	c.IngressMode = cmp.Or(c.IngressMode, string(ingress.Strict))
	c.IngressClass = cmp.Or(c.IngressClass, "istio")
	if c.IngressSelector == "" {
		c.IngressService = cmp.Or(c.IngressService, "istio-ingressgateway")
	}
	c.LockType = cmp.Or(c.LockType, string(leaderelection.LockTypeConfigMap))
	c.StopLimit = cmp.Or(c.StopLimit, defaultStopLimit)
	c.Revision = cmp.Or(c.Revision, "default")
	if c.Logger == nil {
		c.Logger = istiolog.New()
	}
	return c
}

// namespace returns the configuration of the namespace controller, as far as flags define it.
func (c Config) namespace() namespace.Config {
	return namespace.Config{BundleFile: c.CABundle, Excluded: c.ExcludedNamespaces, DiscoverySelectors: c.DiscoverySelectors}
}

// ingress returns the configuration of the ingress controller, as far as flags define it.
func (c Config) ingress() ingress.Config {
	mode, _ := ingress.ParseMode(c.IngressMode)
	mode = cmp.Or(mode, ingress.Mode(c.IngressMode)) // Validate rejects an unknown mode
	config := ingress.Config{Mode: mode, Class: c.IngressClass, Service: types.NamespacedName{Namespace: cmp.Or(c.IngressNamespace, c.Namespace), Name: c.IngressService}}
	if namespace, name, found := strings.Cut(c.IngressService, "/"); found {
		config.Service = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if c.IngressSelector != "" {
		config.Pods = labels.Set{"istio": c.IngressSelector}
	}
	return config
}

// Validate reports all invalid values by flag, with advice. New checks the durations.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	named := func(flag, value, advice string, check func(string) []string) {
		if value == "" {
			wrong("%s is empty: %s", flag, advice)
			return
		}
		for _, problem := range check(value) {
			wrong("%s=%q: %s", flag, value, problem)
		}
	}
	named("--namespace", c.Namespace, "give the control plane's namespace, or set POD_NAMESPACE", validation.IsDNS1123Label)
	named("--identity", c.Identity, "give a name that no other live process has, or set POD_NAME to the pod's", validation.IsDNS1123Subdomain)
	if c.Revision != "" {
		named("--revision", c.Revision, "", validation.IsDNS1123Label)
	}
	c.validateAddresses(wrong)
	if c.CABundle == "" {
		wrong("--ca-bundle is missing: give a file of PEM certificates")
	} else if err := c.namespace().Validate(); err != nil {
		wrong("--excluded-namespaces, --discovery-selector: %w", err)
	}
	c.validateIngress(wrong, named)
	if lock := c.withDefaults().LockType; !slices.Contains([]string{string(leaderelection.LockTypeConfigMap), lockMulti, string(leaderelection.LockTypeLease)}, lock) {
		wrong("--lock: %q is not one of configmap, multi, lease", lock)
	}
	if err := gatewaydeploy.ValidateFields(c.GatewayOverlayFields); err != nil {
		wrong("--gateway-overlay-fields: %w", err)
	}
	if _, err := gatewaydeploy.ParseKinds(c.GatewayObjects); err != nil {
		wrong("--gateway-objects: %w", err)
	}
	if c.ElectionStrategy != "" && c.LockType != string(leaderelection.LockTypeLease) {
		wrong("--election-strategy=%s: coordination requires Leases: give --lock=lease", c.ElectionStrategy)
	}
	if c.Burst < 0 {
		wrong("--kube-burst=%d is negative: give a positive number", c.Burst)
	}
	c.validateWitness(wrong)
	return errors.Join(errs...)
}

func (c Config) validateIngress(wrong func(format string, args ...any), named func(flag, value, advice string, check func(string) []string)) {
	if _, err := ingress.ParseMode(c.withDefaults().IngressMode); err != nil {
		wrong("--ingress-controller-mode: %w", err)
	}
	switch {
	case c.IngressSelector == "":
		named("--ingress-service", c.withDefaults().IngressService, "", func(service string) []string {
			namespace, name, found := strings.Cut(service, "/")
			if !found {
				return validation.IsDNS1035Label(service)
			}
			return append(validation.IsDNS1123Label(namespace), validation.IsDNS1035Label(name)...)
		})
	case c.IngressService != "":
		wrong("--ingress-service=%s and --ingress-selector=%s are set: give only one of them", c.IngressService, c.IngressSelector)
	default:
		named("--ingress-selector", c.IngressSelector, "", validation.IsValidLabelValue)
	}
	if c.IngressNamespace != "" {
		named("K8S_INGRESS_NS", c.IngressNamespace, "", validation.IsDNS1123Label)
	}
}

func (c Config) validateAddresses(wrong func(format string, args ...any)) {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		wrong("--address=%q: give [host]:port, such as :15014: %w", c.Address, err)
	}
	if _, _, err := net.SplitHostPort(c.DebugAddress); err != nil && c.DebugAddress != "" {
		wrong("--debug-address=%q: give host:port, such as 127.0.0.1:15016, or an empty value for no elections page: %w", c.DebugAddress, err)
	}
}

// lockMulti is the LockType of a migration: the lock is a Lease, and the ConfigMap of the same name is its held predecessor.
const lockMulti = "multi"

// restConfig returns the client configuration of the cluster.
func (c Config) restConfig() (*rest.Config, error) {
	if c.Remote {
		return kube.LoadConfig(kube.Source{Path: c.RemoteKubeconfig, Flag: "--remote-kubeconfig"})
	}
	if c.RESTConfig != nil {
		return c.RESTConfig, nil
	}
	return kube.LoadConfig(c.Kubernetes)
}
