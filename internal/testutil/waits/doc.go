// Package waits waits for conditions in tests.
package waits
