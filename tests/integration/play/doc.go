// Package play plays elections at random on a real API server, and judges by what that has
// stored: the writes of the work in the order of their resourceVersions, and the audit log.
package play
