package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// newRemote is the address of a remote cluster that answers nothing: with a real one it is
// tests/integration/ground that tries it.
func newRemote(t *testing.T) string {
	t.Helper()
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	t.Cleanup(there.Close)
	return there.URL
}

// visits: it has an election in the remote cluster, whose candidates say that they come from elsewhere.
func visits(t *testing.T, w *world) {
	var keys []string
	for _, e := range w.byFlag.elections(t) {
		if e.Cluster == "remote" {
			keys = append(keys, e.Key)
		}
	}
	if len(keys) != 1 || keys[0] != "^flag-revision" {
		t.Errorf("in the remote cluster its keys are %q", keys)
	}
}
