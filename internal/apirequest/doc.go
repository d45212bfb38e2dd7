// Package apirequest has code for programs that repeat requests to an API server. Trouble logs each failure once, Pause waits between two
// attempts, Backoff doubles the pause, and Older compares resourceVersions.
package apirequest
