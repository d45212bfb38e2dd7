package manifests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// CABundle is the path of the bundle inside the container; "" means
	// /etc/incumbent/ca/root-cert.pem.
	CABundle string
	// CABundleConfigMap is a ConfigMap of the namespace with the key root-cert.pem, which
	// is mounted at /etc/incumbent/ca; "" mounts nothing.
	CABundleConfigMap string
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
	graceSeconds = 45 // beyond the server's own bounds of its stop
)

func (v Values) withDefaults() Values {
	setDefault(&v.Namespace, "istio-system")
	setDefault(&v.Name, "pilot")
	setDefault(&v.Revision, "default")
	setDefault(&v.Address, fmt.Sprintf(":%d", httpPort))
	setDefault(&v.CABundle, caFolder+"/"+caKey)
	if v.WithoutElections {
		v.Rights.ConfigMaps, v.Rights.Leases = nil, nil
	}
	if v.Replicas == 0 && v.WithoutElections {
		v.Replicas = 1
	} else if v.Replicas == 0 {
		v.Replicas = 2
	}
	return v
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
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
	return append(args, v.Args...)
}

func (v Values) envNames() []string { return slices.Sorted(maps.Keys(v.Env)) }
