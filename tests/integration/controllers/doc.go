// Package controllers tests on a real API server, with the permissions of the manifests: the watchers of
// the default revision and of tags, the namespace controller, and servers with several controllers,
// installations and clusters.
package controllers
