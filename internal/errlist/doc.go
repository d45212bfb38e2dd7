// Package errlist formats errors and other texts in one line, for log fields, Events and command lines. The format of go-multierror
// has a line for each error.
package errlist
