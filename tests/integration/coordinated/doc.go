// Package coordinated tries elections of package leaderelection that a coordinator chooses in, on an API server that serves
// LeaseCandidates, with the rights that servers have.
package coordinated
