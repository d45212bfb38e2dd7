// Package wiring tests elector, gate and API server together: after a leader has lost its term,
// in any way, none of its writes is sent.
package wiring
