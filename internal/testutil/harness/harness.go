package harness

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
)

// Patience bounds every wait.
const Patience = waits.Bound

// Log is a log that can be read while it is written. Its zero value is empty.
type Log = logs.Buffer

// Until waits until a condition holds, and fails the test after Patience.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waits.Until(t, what, holds)
}

// Skip skips a test that this machine cannot run. In CI the test fails.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
