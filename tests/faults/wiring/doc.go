// Package wiring tests elector, gate and API server together: whatever way a leader loses its
// term, nothing that it still sends gets out.
package wiring
