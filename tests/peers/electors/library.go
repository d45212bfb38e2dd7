package electors

import (
	"fmt"
	"time"
)

// Library is the library of a candidate.
type Library int

const (
	// Incumbent is this project.
	Incumbent Library = iota
	// Istio is istio.io/istio/pilot/pkg/leaderelection.
	Istio
	// ClientGo is k8s.io/client-go/tools/leaderelection.
	ClientGo
)

// Libraries are all libraries.
var Libraries = []Library{Incumbent, Istio, ClientGo}

func (l Library) String() string {
	return [...]string{"incumbent", "Istio", "client-go"}[l]
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

// Resource returns the resource name.
func (l Lock) Resource() string { return [...]string{"configmaps", "leases"}[l] }

// Timing is the timing of an election.
type Timing struct{ Lease, Deadline, Retry time.Duration }

var (
	// IstioTiming is the fixed timing of istiod.
	IstioTiming = Timing{30 * time.Second, 15 * time.Second, 7500 * time.Millisecond}
	// KubernetesTiming is the timing of the Kubernetes controllers and the advice of client-go.
	KubernetesTiming = Timing{15 * time.Second, 10 * time.Second, 2 * time.Second}
)

// String returns the timing in seconds: "30/15/7.5".
func (t Timing) String() string {
	return fmt.Sprintf("%g/%g/%g", t.Lease.Seconds(), t.Deadline.Seconds(), t.Retry.Seconds())
}
