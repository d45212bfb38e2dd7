// Package gateway tests servers with the Gateway controllers on a real API server: missing and old CustomResourceDefinitions,
// tags, the fence, and what both controllers write for one Gateway. The tests set the status of Deployments and Services.
// Package upgrade sends requests through Gateways.
package gateway
