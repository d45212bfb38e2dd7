// Package orders is an operator's side of an election. An Operator gives orders by way of the lock object: transfer, step
// down, pause, resume. DecodeNotes reads what stands on a lock, for programs that show elections.
//
// The electors that obey are those of package k8sleaderelection.
package admin
