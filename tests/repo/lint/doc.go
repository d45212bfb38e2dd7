// Command lint reports tests that sleep, which no common linter can tell from those that do so in a bubble of synctest.
// `make lint` runs it; the other rules of this project are in .golangci.yml.
package main
