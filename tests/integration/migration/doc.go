// Package migration tests on a real API server that an election moves from a ConfigMap to a Lease, and from one
// lock to one per revision. Old and new replicas run at the same time, and no two of them lead.
package migration
