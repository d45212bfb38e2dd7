// Package source reads a Go module's files as syntax, for the tests and rules
// that hold for the source itself. It needs no build, so it sees every file
// whatever its build constraints say.
//
// Folders named testdata, hidden folders and nested modules are left out.
package source
