// Package features is where the environment is read: once, by the server, and handed
// down as values.
//
// The variables are registered through istio.io/pkg/env under Istio's names where
// Istio has them. Its own getters log a value that they cannot parse and go on with the
// default; FromEnv reports it as an error that names the variable.
package features
