// Package k8sresourcelock stores who leads an election: in an annotation of a
// ConfigMap or in a Lease, byte-compatible with istiod's and client-go's electors.
//
// Every write is guarded by the resourceVersion of the object it was decided on,
// and keeps the labels, annotations, data and owner references that others put
// there. A record that cannot be decoded is handed on as such; nothing is lost.
package k8sresourcelock
