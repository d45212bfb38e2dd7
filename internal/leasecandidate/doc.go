// Package leasecandidate publishes a process as a LeaseCandidate of a coordinated election (package coordination).
//
// A Publisher writes the LeaseCandidate when its content changes, answers the pings of a coordinator, and deletes the object at
// its end. It sends no other requests.
package leasecandidate
