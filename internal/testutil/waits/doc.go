// Package waits waits in tests for what real processes and API servers bring about.
package waits
