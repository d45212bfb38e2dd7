// Package example extracts the program of README.md, for tests that compile and run it.
package example
