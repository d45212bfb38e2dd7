// Package errlist words several errors in one line, as log fields and command lines want
// them: go-multierror's own form counts them and takes a line for each.
package errlist
