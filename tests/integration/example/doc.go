// Package example runs the programs of README.md and of other pages on a real API server, with the least permissions.
package example
