// Command lint reports tests that call time.Sleep outside a synctest bubble. Common linters cannot distinguish the two. `make lint` runs
// it. The other rules are in .golangci.yml.
package main
