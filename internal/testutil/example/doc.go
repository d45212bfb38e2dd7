// Package example takes README.md's program out of the page, for tests that compile,
// measure and run what a reader would copy.
package example
