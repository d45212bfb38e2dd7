package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Values configures the objects of a revision.
type Values struct {
	// Namespace is the namespace of the control plane and its locks. Empty means istio-system.
	Namespace string
	// Name is the name of the control plane. Objects are named <name>-<revision>. Empty means "pilot".
	Name string
	// Revision is the revision to install. Empty means "default".
	Revision string
	// WithoutElections is for one replica without elections and without rights to locks. A rollout ends it before the next
	// one starts.
	WithoutElections bool
	// Rights is the result of bootstrap.Rights for the revision, Args and Env.
	Rights Rights
	// Image is the image to run. Its program accepts the arguments of cmd/pilot.
	Image string
	// Replicas is the number of replicas. 0 means 2, or 1 without elections.
	Replicas int32
	// Address is --address. Empty means ":15014". If pods share a network, use "$(POD_IP):15014".
	Address string
	// DebugAddress is --debug-address. If empty, the default of the server, at localhost.
	DebugAddress string
	// CABundle is the path of the bundle in the container. Empty means /etc/incumbent/ca/root-cert.pem.
	CABundle string
	// CABundleConfigMap is a ConfigMap with the key root-cert.pem, mounted at /etc/incumbent/ca. Optional.
	CABundleConfigMap string
	// RemoteKubeconfigSecret is a Secret with the key kubeconfig of a remote cluster. Optional.
	RemoteKubeconfigSecret string
	// GuardedLeases are the locks of this revision that its fence uses as parameters. They are created with the fence: while
	// one is missing, the API server rejects all guarded writes.
	GuardedLeases []string
	// LeaseDuration, RenewDeadline and RetryPeriod are the flags of these names. 0 omits them.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Args are additional arguments of the server.
	Args []string
	// Env are additional environment variables.
	Env map[string]string
}

const (
	httpPort     = 15014
	caFolder     = "/etc/incumbent/ca"
	caKey        = "root-cert.pem"
	remoteFolder = "/etc/incumbent/remote"
	remoteKey    = "kubeconfig"
	graceSeconds = 45 // exceeds the bounds of the server's stop
)

func (v Values) withDefaults() Values {
	v.Namespace = cmp.Or(v.Namespace, "istio-system")
	v.Name = cmp.Or(v.Name, "pilot")
	v.Revision = cmp.Or(v.Revision, "default")
	v.Address = cmp.Or(v.Address, fmt.Sprintf(":%d", httpPort))
	v.CABundle = cmp.Or(v.CABundle, caFolder+"/"+caKey)
	if v.WithoutElections {
		v.Rights.ConfigMaps, v.Rights.Leases, v.GuardedLeases = nil, nil, nil
	}
	if v.Replicas == 0 && v.WithoutElections {
		v.Replicas = 1
	} else if v.Replicas == 0 {
		v.Replicas = 2
	}
	return v
}

// Validate reports all invalid values.
func (v Values) Validate() error {
	v = v.withDefaults()
	var errs []error
	for what, name := range map[string]string{"Namespace": v.Namespace, "Name": v.Name, "Revision": v.Revision} {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("%s %q: %s", what, name, problem))
		}
	}
	if len(v.Rights.ConfigMaps)+len(v.Rights.Leases) == 0 && !v.WithoutElections {
		errs = append(errs, errors.New("no locks in Rights: without locks no server can lead"))
	}
	if _, port, err := net.SplitHostPort(v.Address); err != nil {
		errs = append(errs, fmt.Errorf("the address %q: give [host]:port, such as :15014: %w", v.Address, err))
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		errs = append(errs, fmt.Errorf("the address %q: the port must be a number, for example :15014", v.Address))
	}
	if v.Image == "" {
		errs = append(errs, errors.New("no Image"))
	}
	if v.Replicas < 0 {
		errs = append(errs, fmt.Errorf("%d Replicas: must not be negative", v.Replicas))
	}
	if v.Replicas > 1 && v.WithoutElections {
		errs = append(errs, fmt.Errorf("%d Replicas without elections would all run the controllers: use 1", v.Replicas))
	}
	return errors.Join(errs...)
}

// port returns the port of Address.
func (v Values) port() int32 {
	_, text, _ := net.SplitHostPort(v.Address)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return httpPort // Validate rejects it
	}
	return int32(port)
}

// arguments returns the arguments of the server.
func (v Values) arguments() []string {
	args := []string{"server", "--address=" + v.Address, "--ca-bundle=" + v.CABundle}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"lease-duration", v.LeaseDuration}, {"renew-deadline", v.RenewDeadline}, {"retry-period", v.RetryPeriod}} {
		if d.value != 0 {
			args = append(args, fmt.Sprintf("--%s=%v", d.flag, d.value))
		}
	}
	if v.RemoteKubeconfigSecret != "" {
		args = append(args, "--remote-kubeconfig="+remoteFolder+"/"+remoteKey)
	}
	if v.DebugAddress != "" {
		args = append(args, "--debug-address="+v.DebugAddress)
	}
	return append(args, v.Args...)
}

func (v Values) envNames() []string { return slices.Sorted(maps.Keys(v.Env)) }
