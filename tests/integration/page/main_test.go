package page

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/integration/page/chromium"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" { // the benchmarks' leader, a process of its own
		serveAsProcess()
		return
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// newBrowser starts Chromium until the test's end. Without it the test is skipped, but in CI.
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
			t.Errorf("chromium has not ended as it should: %v", err)
		}
	})
	return b
}

// open opens an address until the test's end, and fails the test if the page complains of anything.
func open(t testing.TB, b *chromium.Browser, address string, look chromium.Look) *chromium.Tab {
	t.Helper()
	tab, err := b.Open(address, look)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, wrong := range tab.Wrong() {
			t.Errorf("the page complains: %s", wrong)
		}
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	return tab
}

// until waits until an expression is true in the page.
func until(t testing.TB, tab *chromium.Tab, what, expression string) {
	t.Helper()
	if err := tab.Wait(expression, patience); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ask is what an expression gives in the page.
func ask[T any](t testing.TB, tab *chromium.Tab, expression string) T {
	t.Helper()
	answer, err := chromium.Ask[T](tab, expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return answer
}
