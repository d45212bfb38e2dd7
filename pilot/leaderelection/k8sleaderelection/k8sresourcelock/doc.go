// Package k8sresourcelock stores who leads an election: in an annotation of a
// ConfigMap or in a Lease, byte-compatible with istiod's and client-go's electors.
//
// A lock is read as a Snapshot and written on one:
//
//	Read, Watch ──▶ Snapshot ──▶ Write(base, record, notes) ──▶ Snapshot
//	                                 └──▶ ErrConflict: the store has moved on, read again
//
// Invariants:
//
//   - Every write is guarded by the UID and the resourceVersion of the object it was
//     decided on. One that is too late changes nothing.
//   - Labels, annotations, data and owner references that others put on the object
//     survive, and so do notes of a later version of this project.
//   - A record that cannot be decoded or believed is handed on as such, with its
//     bytes; no object makes a decoder panic.
//   - A Snapshot is immutable, and holds values where the API has pointers.
//   - An answer that never came is an error other than ErrConflict: the write may
//     have taken place.
//
// Leases of one namespace can be watched together, and the calls of many electors bounded: see Shared.
//
// A MultiLock shows two objects as one lock, for moving from one to the other. If the record
// of either is unreadable, the lock's is. The same term in both is shown once; otherwise the
// record of one of them is shown, and Snapshot.Parts says in which it stands. UID and
// ResourceVersion are the secondary's.
//
// The package can be used alone. Of this module it imports the elector's core alone, which decides
// what the two objects of a MultiLock come to as one lock. Get, Create and Update serve callers of
// client-go's locks; electors that care which state a write was decided on use Read and Write.
package k8sresourcelock
