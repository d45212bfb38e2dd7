// Package k8sresourcelock reads and writes the lock of an election: an annotation of a ConfigMap, or a Lease.
// The format is the format of istiod and client-go.
//
// A read returns a Snapshot. A write takes the Snapshot that it is based on:
//
//	Read, Subscribe ──▶ Snapshot ──▶ Write(base, record, annotations) ──▶ Snapshot
//	                                     └──▶ ErrConflict: the object has changed, read again
//
// Invariants:
//
//   - Every write is guarded by the UID and the resourceVersion of its base. If the object has changed, nothing
//     is written.
//   - A write preserves labels, annotations, data and owner references of other writers. It also preserves
//     annotations of later versions of this project.
//   - An invalid record is returned with its bytes and an error. No content of an object causes a panic.
//   - A Snapshot is immutable. It has values where the API has pointers.
//   - If the reply of a write was lost, the error is not ErrConflict: the write may have been stored.
//
// A Shared lets many locks use one watch per namespace, and limits concurrent API calls.
//
// The package can be used alone. Get, Create and Update are for callers of client-go's locks. Electors use Read
// and Write, because their base is explicit.
package k8sresourcelock
