package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/istiolog"
	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// Config of a Server. Errors about it name the flags of cmd/pilot.
type Config struct {
	// Kubernetes says where the API server is.
	Kubernetes kube.Source
	// RESTConfig, when set, is used instead of Kubernetes.
	RESTConfig *rest.Config
	// RemoteKubeconfig is a file that says where another cluster's API server is; "" means that there
	// is none. Controllers that work in remote clusters, too, do so there, under elections
	// in that cluster's namespace of the same name, where candidates of that cluster go before this server.
	RemoteKubeconfig string
	// QPS and Burst limit the work's requests to each cluster; a negative QPS means no limit. Elections
	// and the default revision have clients of their own, without a limit. 0 means 40
	// and 60.
	QPS   float32
	Burst int

	// Namespace is the control plane's: its locks live there.
	Namespace string
	// Identity is this process's name in elections, unique among live processes.
	Identity string
	// PodUID is that of the Pod that is called Identity, and to which what the server publishes of itself is to
	// belong; "" where it runs in none.
	PodUID string
	// DisableMember keeps the server from publishing a Lease that says what it could lead (package members).
	DisableMember bool
	// Revision of this control plane; "" counts as "default".
	Revision string
	// ClusterID is the name of the cluster, for the log.
	ClusterID string

	// Address is where to serve health, metrics and the state of elections.
	Address string
	// DebugAddress is where to serve the elections page (package debug), for people; "" means nowhere.
	DebugAddress string
	// CABundle is the file that the namespace controller spreads.
	CABundle string
	// ExcludedNamespaces get no bundle; nil means the controller's own list.
	ExcludedNamespaces []string

	// IngressMode and IngressClass say which Ingresses get a status: OFF (none, and no election),
	// STRICT or DEFAULT, as ingress.Mode has it; "" means STRICT, and "istio".
	IngressMode, IngressClass string
	// IngressService is the Service of the control plane's namespace whose addresses are
	// the Ingresses'; "" means istio-ingressgateway.
	IngressService string

	// DisableGatewayAPI turns both controllers of the Gateway API off, DisableGatewayStatus and
	// DisableGatewayDeployment one of them. DisableGatewayClass leaves it to others to make the
	// GatewayClass istio.
	DisableGatewayAPI, DisableGatewayStatus, DisableGatewayDeployment, DisableGatewayClass bool

	// Lock is "configmap", "lease" or, between the two, "multi"; "" means configmap.
	Lock string
	// Coordinator has the server take part in the election of a coordinator, which names the leaders of the namespace's coordinated
	// elections (package coordination).
	Coordinator bool
	// ElectionStrategy has a coordinator choose who leads the elections that all revisions share, by the strategy of that
	// name; "" leaves that to the candidates. It needs Lock "lease".
	ElectionStrategy string
	// OldestEmulation has the coordinator choose by OldestEmulationVersion as well, which an API server with the feature
	// CoordinatedLeaderElection does itself.
	OldestEmulation bool
	// EmulationVersion is what the server behaves like in coordinated elections, a semantic version without a v in front that
	// is at most its own; "" means its own.
	EmulationVersion string
	// LeaseDuration, RenewDeadline and RetryPeriod are the elections' timing; 0 means
	// 30 s, 15 s and 7.5 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// DisableElections runs every controller at once and touches no lock.
	DisableElections bool
	// DisableGate gives controllers a client that writes whoever leads.
	DisableGate bool
	// Fence says that policies in the API server guard what controllers write (see
	// FenceConfig). The server then finds out by itself, at its start and whenever a term
	// begins or has ended, whether they do.
	Fence bool
	// ShutdownTimeout is how long controllers may take to stop while their locks are
	// kept; 0 means 20 s. The whole stop takes some seconds more at most.
	ShutdownTimeout time.Duration

	// Profiling serves Go's profiles at Address, under /debug/pprof/.
	Profiling bool

	// ExitOnStuckDrain ends the process, with exit code 3, when a controller outstays its drain: another one may
	// lead soon, and only that makes sure that this one does not act. Without it the server reports it and goes on.
	ExitOnStuckDrain bool
	// Logger receives everything; nil means Istio's log.
	Logger *slog.Logger

	// remote: this is what the server does in the remote cluster.
	remote bool
	// Tests shorten these: how long run functions may outlive their lease before the server
	// counts as unhealthy, and how often the fence's self-test looks by itself.
	healthTolerance, fenceEvery time.Duration
}

const (
	defaultQPS             = 40
	defaultBurst           = 60
	defaultShutdownTimeout = 20 * time.Second
)

func (c Config) withDefaults() Config {
	c.QPS = cmp.Or(c.QPS, defaultQPS)
	c.Burst = cmp.Or(c.Burst, defaultBurst)
	c.IngressMode = cmp.Or(c.IngressMode, string(ingress.Strict))
	c.IngressClass = cmp.Or(c.IngressClass, "istio")
	c.IngressService = cmp.Or(c.IngressService, "istio-ingressgateway")
	c.Lock = cmp.Or(c.Lock, leaderelection.ConfigMapLock.String())
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, defaultShutdownTimeout)
	c.Revision = cmp.Or(c.Revision, "default")
	if c.Logger == nil {
		c.Logger = istiolog.New()
	}
	return c
}

// ingress is the configuration of the ingress controller, as far as flags have it.
func (c Config) ingress() ingress.Config {
	mode, err := ingress.ParseMode(c.IngressMode)
	if err != nil {
		mode = ingress.Mode(c.IngressMode) // for Validate to refuse
	}
	return ingress.Config{Mode: mode, Class: c.IngressClass, Service: types.NamespacedName{Namespace: c.Namespace, Name: c.IngressService}}
}

// validateIngress names what is wrong with the ingress controller's flags.
func (c Config) validateIngress(wrong func(format string, args ...any)) {
	c = c.withDefaults()
	if _, err := ingress.ParseMode(c.IngressMode); err != nil {
		wrong("--ingress-controller-mode: %w", err)
	}
	for _, problem := range validation.IsDNS1035Label(c.IngressService) {
		wrong("--ingress-service=%q: %s", c.IngressService, problem)
	}
}

// Validate reports all that cannot be meant, by flag and with the way out. How the
// durations relate is for the elections to judge; New asks them.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	named := func(flag, value, wayOut string, check func(string) []string) {
		if value == "" {
			wrong("%s is empty: %s", flag, wayOut)
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
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		wrong("--address=%q: give [host]:port, such as :15014: %w", c.Address, err)
	}
	if _, _, err := net.SplitHostPort(c.DebugAddress); err != nil && c.DebugAddress != "" {
		wrong("--debug-address=%q: give host:port, such as 127.0.0.1:15016, or an empty one for no elections page: %w", c.DebugAddress, err)
	}
	if c.CABundle == "" {
		wrong("--ca-bundle is missing: give a file of PEM certificates")
	} else if err := (namespace.Config{BundleFile: c.CABundle, Excluded: c.ExcludedNamespaces}).Validate(); err != nil {
		wrong("--excluded-namespaces: %w", err)
	}
	c.validateIngress(wrong)
	if _, err := lockType(c.Lock); err != nil {
		wrong("--lock: %w", err)
	}
	if c.ElectionStrategy != "" && c.Lock != leaderelection.LeaseLock.String() {
		wrong("--election-strategy=%s: a coordinator knows Leases alone: give --lock=lease", c.ElectionStrategy)
	}
	if c.Burst < 0 {
		wrong("--kube-burst=%d is negative: give a positive number", c.Burst)
	}
	c.validateDurations(wrong)
	return errors.Join(errs...)
}

func (c Config) validateDurations(wrong func(format string, args ...any)) {
	for _, flag := range []struct {
		name  string
		value time.Duration
	}{
		{"--shutdown-timeout", c.ShutdownTimeout},
		{"--lease-duration", c.LeaseDuration}, {"--renew-deadline", c.RenewDeadline}, {"--retry-period", c.RetryPeriod},
	} {
		if flag.value < 0 {
			wrong("%s=%v is negative: give a positive duration", flag.name, flag.value)
		}
	}
}

func lockType(name string) (leaderelection.LockType, error) {
	for _, known := range []leaderelection.LockType{leaderelection.ConfigMapLock, leaderelection.LeaseLock, leaderelection.MultiLock} {
		if name == known.String() || name == "" {
			return known, nil
		}
	}
	return 0, fmt.Errorf("%q is none of configmap, multi, lease", name)
}

// restConfig is where the API server is.
func (c Config) restConfig() (*rest.Config, error) {
	if c.remote {
		return kube.LoadConfig(kube.Source{Path: c.RemoteKubeconfig, Flag: "--remote-kubeconfig"})
	}
	if c.RESTConfig != nil {
		return c.RESTConfig, nil
	}
	return kube.LoadConfig(c.Kubernetes)
}
