//go:build !race

package core

// visitEvery is which of the enumeration's states are visited: all.
const visitEvery = 1
