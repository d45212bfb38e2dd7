package waits

import (
	"testing"
	"time"
)

const (
	// Bound bounds a wait. It only ends a test that would wait forever: on a busy machine, the start of a process can take a minute.
	Bound = 3 * time.Minute
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
			if holds() { // this process did not run for a long time
				return
			}
			t.Fatalf("not within %v: %s", Bound, what)
		}
	}
}
