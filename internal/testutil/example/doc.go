// Package example extracts the program of README.md and the diffs of other pages, for tests that compile and run them.
package example
