// Package library tests incumbent as other people's programs meet it: what importing it brings
// along, what it does to the program's logging, how it behaves in their unit tests, on
// client-go's fake clientsets and with the doubles that they bring from istiod.
package library
