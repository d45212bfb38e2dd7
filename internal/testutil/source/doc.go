// Package source parses the files of a Go module, for tests of the source itself. It ignores build constraints. It
// skips folders named testdata, hidden folders and nested modules.
package source
