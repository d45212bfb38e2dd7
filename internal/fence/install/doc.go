// Package install installs a fence in a cluster, removes it, and verifies that it is in effect.
//
// Apply writes objects in an order in which no write that was rejected before is admitted, and no write of the leader is
// rejected:
//
//	permanent policies · policies · bindings of locks · bindings of guarded writes · removal of old objects
//
// A policy without a binding rejects nothing, so it takes effect as a whole with its binding. Old objects are removed last,
// bindings first. Each step can be repeated, and the next Apply completes an interrupted Apply. Each API server loads
// policies separately, within about a second.
//
// Verify and SelfTest share their probes. Verify tries guarded writes as other users by impersonation. SelfTest tries them
// with the credentials of a running server.
package install
