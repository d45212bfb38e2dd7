// Package record has the content of a lock: its record and the annotations of this project. All packages read and write a lock
// as a Snapshot. Package k8sresourcelock converts Leases and ConfigMaps.
//
// Other electors and other users can write each annotation. Therefore each has a condition for when it counts, as a method of
// Snapshot.
package record
