// Package apirequest has code for programs that repeat requests to an API server. Trouble logs each failure once, Pause waits between two
// attempts, and Backoff doubles the pause.
package apirequest
