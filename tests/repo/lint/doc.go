// Command lint reports tests that call time.Sleep outside a synctest bubble, and names in the Makefile that select no test. Common
// linters do neither. `make lint` runs it. The other rules are in .golangci.yml.
package main
