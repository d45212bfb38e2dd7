// Package electionmetrics exports the current state of an election as metrics: of `pilot server`, and of programs with
// controller-runtime. The state is read during a scrape.
package electionmetrics
