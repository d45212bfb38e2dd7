// Package logs keeps what is logged in a test, to be read while it is written.
package logs
