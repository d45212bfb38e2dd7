// Package conformance runs selected tests of the Gateway API conformance suite that send no traffic. The
// servers of two revisions run both Gateway controllers on a real API server, with elections and the
// permissions of the chart.
//
// The project does not claim conformance, because most tests of the suite need a data plane. The controller
// manager rolls out the Deployments of Gateways. The tests set the readiness of Pods and the addresses of
// Services, because there is no node and no load balancer.
package conformance
