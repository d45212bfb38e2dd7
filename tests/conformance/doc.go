// Package conformance runs tests of the Gateway API's conformance suite that send no traffic, by
// name, against servers of two revisions with both controllers of the Gateway API, their elections and the
// manifests' rights, on a real API server.
//
// No conformance is claimed: most of the suite's tests send traffic, and there is no data plane here.
// What is made for a Gateway is made by the controller, and rolled out by Kubernetes' own; that Pods are ready and Services have
// an address is played, for no node and no load balancer are there.
//
// It is a module of its own, so that nobody else needs what the suite needs.
package conformance
