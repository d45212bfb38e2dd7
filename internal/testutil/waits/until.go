package waits

import (
	"testing"
	"time"
)

const (
	// Bound is how long a wait takes at most; what takes this long has failed.
	Bound = time.Minute
	every = 5 * time.Millisecond
)

// Until waits until something holds, and ends the test if it does not within Bound.
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
