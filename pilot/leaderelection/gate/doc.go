// Package gate rejects writes of a process that does not lead.
//
// A Gate wraps the transport of a client. It passes reads, and passes writes only while the term of the process is valid
// (see package k8sleaderelection). It reads the clocks for each request. So a process that was paused cannot send writes
// that it had queued. Only the loop of an elector opens and closes a gate.
//
// The gate closes on time but controls only its own clients. The fence consists of policies in the API server, and rejects
// late writes of every client with the token of the pod. `pilot fence` installs it, see docs/fence.md. The gate retries
// writes that the fence rejects before the API server has seen the new leader. IsRefusal recognizes such a rejection.
package gate
