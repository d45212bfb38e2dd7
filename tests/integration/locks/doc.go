// Package locks checks the locks against a real API server: the same conformance
// suite that the lock in memory passes, with the least rights that a candidate
// needs, and the bytes that istiod and client-go read and write.
package locks
