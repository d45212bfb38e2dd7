// Package derive computes the durations that follow from the configured ones. The elector and the simulation
// share it.
package derive
