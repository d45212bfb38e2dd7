// Package locks tests the locks on a real API server: the conformance suite with the least permissions of a
// candidate, and the bytes that istiod and client-go read and write.
package locks
