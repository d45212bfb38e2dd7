// Package library tests incumbent as a dependency of other programs: packages and binary size, the logging of the program, and unit
// tests with the fake clientsets of client-go and the test doubles of istiod.
package library
