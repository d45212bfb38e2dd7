// Package gitops tests the rendered charts with the sync engine of Argo CD 3.5, and with the tools that replace or restore objects.
//
// The engine is the newest one for Kubernetes 0.36. The next one, of Argo CD 3.6, needs Kubernetes 0.37 and Go 1.27.
package gitops
