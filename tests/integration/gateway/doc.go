// Package gateway tests servers and the Gateway controllers in a cluster with a node and a load balancer:
// a Gateway from its creation to an HTTP response, missing and old CustomResourceDefinitions, tags, and
// the fence. The proxy in the Pods is a test program.
package gateway
