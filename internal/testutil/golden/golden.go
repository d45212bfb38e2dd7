package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var rewrite = flag.Bool("rewrite", false, "write the generated texts to their files")

// File compares a text with a file.
func File(t testing.TB, file, text string) {
	t.Helper()
	if *rewrite {
		harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want := strings.Split(read(t, file), "\n")
	for i, line := range strings.Split(text, "\n") {
		if i >= len(want) || line != want[i] {
			t.Errorf("line %d of %s is now %q; go test -rewrite updates it. The text is now:\n%s", i+1, file, line, text)
			return
		}
	}
	if lines := strings.Count(text, "\n") + 1; lines < len(want) {
		t.Errorf("%s has %d lines, now there are %d; go test -rewrite updates it", file, len(want), lines)
	}
}

// Section compares a text with the part of a file between two markers.
func Section(t testing.TB, file, begin, end, text string) {
	t.Helper()
	before, rest, found := strings.Cut(read(t, file), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no markers %q and %q", file, begin, end)
	}
	File(t, file, before+begin+text+end+after)
}

func read(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	harness.Must(t, err)
	return string(content)
}
