package rollout

import (
	"time"

	"incumbent.dev/incumbent/internal/audit"
)

// Options describe the cluster and the control plane.
type Options struct {
	// Pilot is the server program, Dataplane the program that replaces the proxy of Gateways.
	Pilot, Dataplane string
	// Helm is the Helm program, Charts the folder deploy/charts of the repository.
	Helm, Charts string
	// Images are further programs by image name.
	Images map[string]string
	// Lease, Renew and Retry are the timing of the elections. Default: 15 s, 10 s and 2 s.
	Lease, Renew, Retry time.Duration
	// Seed is the seed of the writer.
	Seed uint64
	// Coordinated lets a coordinator choose the leaders.
	Coordinated bool
	// LeaseCandidates makes the API server serve LeaseCandidates, also if Coordinated is not set.
	LeaseCandidates bool
	// FenceOthers are further accounts that the fence declares.
	FenceOthers []string
	// WithoutFence installs no fence.
	WithoutFence bool
	// Gateways is the number of Gateways that receive requests. Default: 3.
	Gateways int
	// WithoutGateways leaves out Gateways, requests and routes. Only the two shared elections remain.
	WithoutGateways bool
	// Bare creates no objects, not even the namespace.
	Bare bool
	// Log receives a line for each step. Optional.
	Log func(text string)
}

func (o Options) withDefaults() Options {
	if o.Lease == 0 {
		o.Lease = 15 * time.Second
		o.Renew = 10 * time.Second
		o.Retry = 2 * time.Second
	}
	if o.Gateways == 0 {
		o.Gateways = 3
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return o
}

// Release is the release of one revision.
type Release struct {
	Revision string
	Replicas int32
	// Image is the image; "" means Options.Pilot.
	Image string
	// WithoutRights removes the role bindings of its service account.
	WithoutRights bool
	// WithoutElections starts all controllers in all replicas.
	WithoutElections bool
}

const (
	betweenRequests = 5 * time.Millisecond
	// linger is the time that a proxy keeps serving after SIGTERM, for connections that the load balancer has opened before.
	linger = 10 * time.Second
	// drain is the time for open requests after linger, as in the proxy.
	drain = 10 * time.Second
	// grace is the grace period of a proxy, longer than both.
	grace = linger + 2*drain
)

// guards returns the writes of the four controllers (docs/controllers.md).
func (o Options) guards() []audit.Guard {
	if o.WithoutGateways {
		return audit.Istio()[:2]
	}
	return audit.Istio()
}
