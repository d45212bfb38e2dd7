// Package elections runs named elections on a real API server: replicas with a token
// of their own Pod and the least rights that a candidate needs. Its benchmarks print
// how long handovers take and what candidates send.
package elections
