// Package manifests makes the objects that a control plane needs in its cluster: who it
// is, what it may do, and a Deployment for each revision.
//
// The rights are the least that the server works with. Where RBAC can name an object,
// it is named; creating is what RBAC can never restrict to a name.
package manifests
