// Package defaults has a watcher of the default revision that a test controls.
package defaults
