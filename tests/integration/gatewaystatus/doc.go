// Package gatewaystatus tests the gateway status controller on a real API server, with the permissions
// of gatewaystatus.ClusterRules. It covers what fake clients cannot show: CRD defaults and validation,
// patches of the status subresource, and unknown fields in entries of other controllers.
package gatewaystatus
