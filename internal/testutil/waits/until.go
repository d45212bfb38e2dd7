package waits

import (
	"testing"
	"time"
)

const (
	// Bound bounds a wait.
	Bound = time.Minute
	every = 5 * time.Millisecond
)

// Until waits until a condition holds, and fails the test after Bound.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Bound)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", Bound, what)
		}
	}
}
