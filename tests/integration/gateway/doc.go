// Package gateway tests servers with the Gateway controllers on a real API server: missing
// CustomResourceDefinitions, the fence, parameters, Pod Security, and the causes that the status of a Gateway contains. The suite of package
// conformance tests the status of Gateways and routes.
//
// The tests set the status of Deployments and Services. Package upgrade sends requests through Gateways.
package gateway
