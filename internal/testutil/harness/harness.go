package harness

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"
)

const (
	// Patience bounds every wait. It only ends a test that would wait forever: on a busy machine, the start of a process can take a minute.
	Patience = 3 * time.Minute
	every    = 5 * time.Millisecond
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until waits until a condition holds, and fails the test after Patience.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			if holds() { // this process did not run for a long time
				return
			}
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Skip skips a test that this machine cannot run. In CI the test fails.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Background calls run until the test ends or stop is called. stop waits until run has returned. An error of run fails the test.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
