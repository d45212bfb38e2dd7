package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var pageField = regexp.MustCompile(`http://([0-9.]+:[0-9]+)/debug/elections`)

// showsAt: the elections page is there, and not where nobody wants it.
func showsAt(host string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		found := pageField.FindStringSubmatch(w.byFlag.log())
		if found == nil || !strings.HasPrefix(found[1], host) {
			t.Fatalf("the log says that the page is at %q", found)
		}
		if code, body := harness.Page(t, found[1], "/debug/elections"); code != http.StatusOK || !strings.Contains(body, "<main") {
			t.Errorf("%s answers %d: %s", found[1], code, body)
		}
		if found := pageField.FindString(w.byEnv.log()); found != "" {
			t.Errorf("there is a page at %s, which nobody asked for", found)
		}
	}
}
