// Package gateway tests servers with the Gateway controllers on a real API server: missing
// CustomResourceDefinitions, tags, the fence, and what both controllers write for one Gateway. Other tests run only the
// status controller. They show what fake clients cannot show: defaults and validation of the API, patches of the status,
// and unknown fields in entries of other controllers.
//
// The tests set the status of Deployments and Services. Package upgrade sends requests through Gateways.
package gateway
