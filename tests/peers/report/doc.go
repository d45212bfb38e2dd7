// Package report stores the results of the benchmarks, and creates the tables of docs/benchmarks.md.
package report
