//go:build race

package core

// visitEvery is which of the enumeration's states are visited: under the race detector, which finds nothing
// in pure functions and makes them ten times as slow, a few.
const visitEvery = 37
