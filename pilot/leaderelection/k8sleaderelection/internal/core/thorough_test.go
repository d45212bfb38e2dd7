//go:build !race

package core

// visitEvery: 1 means that all states are visited.
const visitEvery = 1
