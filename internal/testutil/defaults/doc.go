// Package defaults is a watcher of the default revision that a test tells what it is.
package defaults
