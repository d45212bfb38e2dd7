// Package gateway tests servers with the Gateway controllers on a real API server: missing and old CustomResourceDefinitions,
// tags, the fence, what both controllers write for one Gateway, and what the status controller writes alone: defaults and
// validation of the API, patches of the status, and unknown fields in entries of other controllers. The tests set the status of Deployments and Services.
// Package upgrade sends requests through Gateways.
package gateway
