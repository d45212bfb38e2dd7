// Package requests counts the requests of a process.
package requests
