// Package gateway tries a Gateway from its object to an answer over HTTP: the controller deploys it, the process node runs
// its Pod, the load balancer gives it an address. The proxy in the Pod is a stand-in.
package gateway
