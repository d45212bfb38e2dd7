// Package connections tests elections and their work over connections that fail: a relay
// between elector and real API server does it.
package connections
