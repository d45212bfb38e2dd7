// Package kube makes clients of a Kubernetes API server.
//
// A Client has the typed and the dynamic client with one transport and one rate limiter. Derive makes another client, with the
// same limiter or another, another wrapper, or separate connections:
//
//	config, err := kube.LoadConfig(kube.Source{Path: path})
//	client, err := kube.NewClient(config, kube.WithRateLimit(40, 60))
//	elector, err := kube.Derive(client, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
//
// After a request timed out, the next one uses another connection. FreshConnections describes this.
//
// No function changes the configuration of its caller.
package kube
