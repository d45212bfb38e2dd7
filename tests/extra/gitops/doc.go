// Package gitops tests the rendered charts with the sync engine of Argo CD 3.5, with the library of Flux, and with the tools that replace
// or restore objects.
//
// Both are the newest versions for Kubernetes 0.36. Newer versions need Kubernetes 0.37 and Go 1.27.
package gitops
