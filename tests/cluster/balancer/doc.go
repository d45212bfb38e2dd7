// Package balancer is a load balancer for clusters without a cloud. Each Service of type LoadBalancer gets a loopback
// address in its status. Connections to a port of the Service are forwarded to a ready endpoint.
//
//	b, err := balancer.New(c.Admin())
//	if err != nil { … }
//	err = b.Run(ctx) // until ctx ends and all connections are closed
//
// It reads endpoints from EndpointSlices. cluster.Options.Services starts their controller, and node.Options.PodNetwork
// gives Pods addresses that EndpointSlices allow.
//
// Not supported: UDP, session affinity, traffic policies, weights, loadBalancerIP. Ports below 1024 need root or
// net.ipv4.ip_unprivileged_port_start.
package balancer
