//go:build race

package core

// visitEvery is larger with the race detector, which makes pure functions ten times slower.
const visitEvery = 37
