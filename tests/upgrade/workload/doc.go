// Package workload is what goes on in a cluster while its control plane is upgraded: somebody makes, edits and deletes
// what the controllers look at, and clients send requests through Gateways.
package workload
