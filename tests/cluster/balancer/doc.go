// Package balancer is a load balancer of this machine, for clusters that have no cloud: each Service of type
// LoadBalancer gets a loopback address in its status, and what connects to it on a port of the Service is
// forwarded to a ready endpoint.
//
//	b, err := balancer.New(balancer.Options{Config: c.Admin()})
//	if err != nil { … }
//	err = b.Run(ctx) // until ctx ends; nothing listens and no connection is open then
//
// Where the endpoints are it reads from EndpointSlices, which Kubernetes' own controller makes: cluster.Options.Services
// starts that, and node.Options.PodNetwork gives Pods addresses that may stand in them.
//
// What is not here: UDP, session affinity, traffic policies, weights, loadBalancerIP. A port below 1024 can be
// listened on by root, or where net.ipv4.ip_unprivileged_port_start allows it.
package balancer
