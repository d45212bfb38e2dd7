package rollout

import (
	"fmt"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

// Options say what is upgraded.
type Options struct {
	// Programs is the folder of etcd and kube-apiserver; "" is as in tests/cluster.
	Programs string
	// Pilot is the server's program, Dataplane the stand-in for a proxy.
	Pilot, Dataplane string
	// Helm is the program, and Charts the folder of the charts.
	Helm, Charts string
	// Images are further programs, by the names that releases call them.
	Images map[string]string
	// Lease, Renew and Retry are the elections'; zero means 15 s, 10 s and 2 s.
	Lease, Renew, Retry time.Duration
	// Seed is the writer's.
	Seed uint64
	// Unfenced leaves the fence out.
	Unfenced bool
	// WithoutGateways leaves out Gateways, and with them the requests and what the writer does to routes: the two shared
	// elections are left.
	WithoutGateways bool
	// Bare puts nothing into the cluster: no namespace, no Gateways.
	Bare bool
	// Say hears of each step; nil means nobody does.
	Say func(text string)
	// Patience bounds each wait. It is no measure of speed.
	Patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Lease == 0 {
		o.Lease, o.Renew, o.Retry = 15*time.Second, 10*time.Second, 2*time.Second
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Minute
	}
	return o
}

// Release is one revision.
type Release struct {
	Revision string
	Replicas int32
	// Image is "" for the server.
	Image string
	// Node is the one that its pods run on; "" means the first.
	Node string
	// Powerless gives its account no rights; Lawless has it work without elections.
	Powerless, Lawless bool
}

const (
	// betweenRequests makes 200 requests a second.
	betweenRequests = 5 * time.Millisecond
	betweenWrites   = 250 * time.Millisecond
)

// Linger and Drain are how long a proxy serves after it was told to end, and how long it has for requests under way then. On
// a busy machine it takes controllers more than eight seconds to say that its Pod is ready no more.
const (
	Linger = 15 * time.Second
	Drain  = 5 * time.Second
)

func (r *Rollout) say(format string, args ...any) { r.options.Say(fmt.Sprintf(format, args...)) }

// duties are the four controllers, as docs/controllers.md lists what they write.
func (o Options) duties() []verdict.Duty {
	writes := func(resources ...string) func(verdict.Write) bool {
		return func(w verdict.Write) bool {
			for _, resource := range resources {
				if w.Resource == resource {
					return true
				}
			}
			return false
		}
	}
	all := []verdict.Duty{
		{Name: "namespace", Lock: "istio-namespace-controller-election", Guards: func(w verdict.Write) bool {
			return w.Resource == "configmaps" && w.Name == bundleName
		}},
		{Name: "ingress", Lock: "istio-leader", Guards: writes("ingresses/status")},
		{Name: "gateway status", Lock: "istio-gateway-status-leader", PerRevision: true, Guards: writes(
			"gatewayclasses", "gatewayclasses/status", "gateways/status", "httproutes/status",
		)},
		{Name: "gateway deployment", Lock: "istio-gateway-deployment", PerRevision: true, Guards: writes(
			"gateways", "serviceaccounts", "services", "deployments",
		)},
	}
	if o.WithoutGateways {
		return all[:2]
	}
	return all
}
