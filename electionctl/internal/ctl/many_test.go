package ctl

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

type roundTrip = harness.RoundTripper

func TestList_TwoRequests(t *testing.T) {
	e := newEnvironment(t)
	e.clientGo("a", "operator-0")
	e.istiod("b", record)
	var mu sync.Mutex
	var paths []string
	e.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusOK { // client-go repeats a request if the API server is busy
				mu.Lock()
				defer mu.Unlock()
				paths = append(paths, r.URL.String())
			}
			return response, err
		})
	}
	if got := e.run("list"); got.code != Done || len(paths) != 2 {
		t.Errorf("%+v, requests %q", got, paths)
	}
}

// A command that was executed succeeds, also if the new state cannot be read.
func TestOrders_StateUnknown(t *testing.T) {
	e := newEnvironment(t)
	e.lock("led", record, "incumbent.dev/leader", "v1 istiod-stable-1 3 handover")
	var written atomic.Bool
	e.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && written.Load() {
				return nil, errors.New("broken connection")
			}
			response, err := next.RoundTrip(r)
			if err == nil && r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/led") {
				written.Store(true)
			}
			return response, err
		})
	}
	e.expect(e.run("pause", "led", "--yes"), Done, "NAMESPACE/led: done; failed to read the new state: ")
}
