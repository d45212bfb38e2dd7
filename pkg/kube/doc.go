// Package kube makes clients of a Kubernetes API server.
//
// A Client is passed through this module instead of a configuration: it has the
// typed and the dynamic client over one transport and one rate limiter. Derive makes
// another: of the same limiter, but with a transport or connections of its own, or with
// a limit of its own for work that must not wait behind other work:
//
//	config, err := kube.LoadConfig(kube.Source{Path: path})
//	client, err := kube.NewClient(config, kube.WithRateLimit(40, 60))
//	elector, err := kube.Derive(client, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
//
// A request that timed out is not followed by another on the same connection, and none waits
// for long on one that is dead: FreshConnections says how.
//
// No function here changes a configuration that it is given.
//
// For code that repeats requests: Trouble logs failures, once for each cause, Pause waits between two tries,
// and Older compares resourceVersions.
package kube
