package page

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/integration/page/chromium"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newBrowser starts Chromium and stops it when the test ends. Without Chromium the test is skipped, except in CI.
func newBrowser(t testing.TB) *chromium.Browser {
	t.Helper()
	_, err := chromium.Program()
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	b, err := chromium.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("failed to stop Chromium: %v", err)
		}
	})
	return b
}

// open opens an address in a tab until the test ends. The test fails if the page reported errors.
func open(t testing.TB, b *chromium.Browser, address string, look chromium.Look) *chromium.Tab {
	t.Helper()
	tab, err := b.Open(address, look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkProblems(t, tab)
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	return tab
}

func checkProblems(t testing.TB, tab *chromium.Tab) {
	t.Helper()
	for _, problem := range tab.Problems() {
		t.Errorf("the page reported: %s", problem)
	}
}

// until waits until an expression is true in the page.
func until(t testing.TB, tab *chromium.Tab, what, expression string) {
	t.Helper()
	if err := tab.Wait(expression, harness.Patience); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ask returns the value of an expression in the page.
func ask[T any](t testing.TB, tab *chromium.Tab, expression string) T {
	t.Helper()
	answer, err := chromium.Ask[T](tab, expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return answer
}
