// Package gateway tests servers with the Gateway controllers on a real API server: missing and old
// CustomResourceDefinitions, tags, and the fence. Package upgrade sends requests through Gateways.
package gateway
