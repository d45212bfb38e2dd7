// Package server has benchmarks of pilot as a process, with thousands of objects, on a real API server and etcd. They
// measure the first reconciliation, the first write after a takeover, and memory. docs/controllers.md has results of
// make bench-server.
//
// All counts come from the audit log of the API server. A process is elected with its first write to a lock. A follower
// writes no lock.
package server
