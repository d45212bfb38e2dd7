// Package migration tests, on a real API server, that an election moves from a
// ConfigMap to a Lease, and from one lock to many, with old and new replicas side by
// side, and without two that work at once.
package migration
