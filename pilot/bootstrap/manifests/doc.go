// Package manifests returns the RBAC rules of a control plane. The chart deploy/charts/pilot has the same rules, which
// tools/helm compares.
//
// The rules are the minimum that the server needs. They name objects where RBAC supports it. RBAC cannot restrict create
// to a name.
package manifests
