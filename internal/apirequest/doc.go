// Package apirequest has code for programs that repeat requests to an API server. Trouble logs each failure once. Reported
// reports any state once until it changes. Outdated recognizes a write of an outdated object. Pause waits between two attempts,
// Backoff doubles the pause, and a Signal ends a wait. Twice sends a guarded request a second time if its answer is late.
package apirequest
