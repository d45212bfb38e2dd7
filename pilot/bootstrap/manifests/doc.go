// Package manifests renders the objects of a control plane: the service account and RBAC objects of a revision, and its
// Deployment.
//
// The rights are the minimum that the server needs. Rules name objects where RBAC supports it. RBAC cannot restrict create
// to a name.
package manifests
