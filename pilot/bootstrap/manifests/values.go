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

// Values say what to install.
type Values struct {
	// Namespace is the control plane's and its locks'; "" means istio-system.
	Namespace string
	// Name is the control plane's: what is made for a revision is called <name>-<revision>; "" means
	// "pilot".
	Name string
	// Revision is which one to install; "" means "default".
	Revision string
	// WithoutElections is for one replica that does not elect: it works at once, and has no right to
	// locks, whatever Rights says of them. A rollout ends it before the next one starts, for both would work.
	WithoutElections bool
	// Rights are what its servers need, as bootstrap.Rights lists them for the revision and for what
	// Args and Env say.
	Rights Rights
	// Image to run. Its program takes the arguments of cmd/pilot.
	Image string
	// Replicas of each revision; 0 means 2, and without elections 1.
	Replicas int32
	// Address is --address; "" means ":15014". Where pods share a network, give
	// "$(POD_IP):15014".
	Address string
	// DebugAddress is --debug-address, where people find the elections page; "" leaves it to the server: at
	// localhost, where kubectl port-forward finds it.
	DebugAddress string
	// CABundle is the path of the bundle inside the container; "" means
	// /etc/incumbent/ca/root-cert.pem.
	CABundle string
	// CABundleConfigMap is a ConfigMap of the namespace with the key root-cert.pem, which
	// is mounted at /etc/incumbent/ca; "" mounts nothing.
	CABundleConfigMap string
	// RemoteKubeconfigSecret is a Secret of the namespace with the key kubeconfig, which says where a remote
	// cluster's API server is; it is mounted, and the server works there, too. "" means that there is none.
	RemoteKubeconfigSecret string
	// GuardedLeases are the Leases that a fence judges by and that no other revision makes. They are
	// made beside it: while one is missing, nobody may write what it guards.
	GuardedLeases []string
	// LeaseDuration, RenewDeadline and RetryPeriod are flags of the same names; 0
	// leaves them out.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Args are further arguments of the server.
	Args []string
	// Env are further variables of its environment.
	Env map[string]string
}

const (
	httpPort     = 15014
	caFolder     = "/etc/incumbent/ca"
	caKey        = "root-cert.pem"
	remoteFolder = "/etc/incumbent/remote"
	remoteKey    = "kubeconfig"
	graceSeconds = 45 // beyond the server's own bounds of its stop
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

// Validate reports all that cannot be meant.
func (v Values) Validate() error {
	v = v.withDefaults()
	var errs []error
	for what, name := range map[string]string{"Namespace": v.Namespace, "Name": v.Name, "Revision": v.Revision} {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("%s %q: %s", what, name, problem))
		}
	}
	if len(v.Rights.ConfigMaps)+len(v.Rights.Leases) == 0 && !v.WithoutElections {
		errs = append(errs, errors.New("no locks in Rights: name the lock objects, or no server can lead"))
	}
	if _, port, err := net.SplitHostPort(v.Address); err != nil {
		errs = append(errs, fmt.Errorf("the address %q: give [host]:port, such as :15014: %w", v.Address, err))
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		errs = append(errs, fmt.Errorf("the address %q: its port is no number, such as in :15014", v.Address))
	}
	if v.Image == "" {
		errs = append(errs, errors.New("no Image: name the one to run"))
	}
	if v.Replicas < 0 {
		errs = append(errs, fmt.Errorf("%d Replicas are less than none", v.Replicas))
	}
	if v.Replicas > 1 && v.WithoutElections {
		errs = append(errs, fmt.Errorf("%d Replicas without elections would all work at once: have one", v.Replicas))
	}
	return errors.Join(errs...)
}

// port is that of Address.
func (v Values) port() int32 {
	_, text, _ := net.SplitHostPort(v.Address)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return httpPort // Validate has refused it
	}
	return int32(port)
}

// arguments are the server's.
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
