// Package errlist formats a multierror.Error in one line, for log fields and command lines. The format of
// go-multierror has a line for each error.
package errlist
