package electors

import (
	"fmt"
	"time"
)

// Library is whose elector a candidate is.
type Library int

const (
	// Incumbent is ours.
	Incumbent Library = iota
	// Istio is istio.io/istio/pilot/pkg/leaderelection.
	Istio
	// ClientGo is k8s.io/client-go/tools/leaderelection.
	ClientGo
)

// Libraries are all of them.
var Libraries = []Library{Incumbent, Istio, ClientGo}

func (l Library) String() string {
	return [...]string{"incumbent", "Istio", "client-go"}[l]
}

// ParseLibrary is the inverse of String.
func ParseLibrary(name string) (Library, error) {
	for _, l := range Libraries {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("%q is none of %v", name, Libraries)
}

// Lock is the kind of lock object.
type Lock int

const (
	// ConfigMap stores the record in an annotation.
	ConfigMap Lock = iota
	// Lease is a coordination.k8s.io Lease.
	Lease
)

func (l Lock) String() string { return [...]string{"ConfigMap", "Lease"}[l] }

// Resource is the lock's as requests name it.
func (l Lock) Resource() string { return [...]string{"configmaps", "leases"}[l] }

// Timing is that of an election.
type Timing struct{ Lease, Deadline, Retry time.Duration }

var (
	// IstioTiming is istiod's, which its constructors do not let one change.
	IstioTiming = Timing{30 * time.Second, 15 * time.Second, 7500 * time.Millisecond}
	// KubernetesTiming is that of Kubernetes' own controllers, client-go's advice.
	KubernetesTiming = Timing{15 * time.Second, 10 * time.Second, 2 * time.Second}
)

// String gives seconds: "30/15/7.5".
func (t Timing) String() string {
	return fmt.Sprintf("%g/%g/%g", t.Lease.Seconds(), t.Deadline.Seconds(), t.Retry.Seconds())
}
