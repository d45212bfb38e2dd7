// Package conformance runs tests of the Gateway API's conformance suite that send no traffic, by
// name, against the gateway status controller on a real API server.
//
// No conformance is claimed: most of the suite's tests send traffic, and there is no data plane here.
// Nor is a Gateway's Deployment under test: the tests play who makes it and its Service, and
// what a Deployment controller and a load balancer would write as their status. A Pod that is ready, which the
// suite wants in each namespace, is played as well.
//
// It is a module of its own, so that nobody else needs what the suite needs.
package conformance
