// Package install puts a fence into a cluster, takes it away, and finds out whether it
// stands.
//
// Objects are installed in such an order that at no time a write is admitted that was refused
// before, or a write of the leader refused:
//
//	permanent ones · policies · bindings of locks · bindings of work · then what is not declared any more
//
// A policy without a binding refuses nothing, so that all of it takes effect with its
// binding, whole. What is obsolete goes last, its binding first. Each step may be repeated; an
// interrupted installation is completed by the next one. The API servers follow within
// a second or so, each for itself.
package install
