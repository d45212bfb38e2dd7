package coordinated

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// refusals counts the requests of a process that the API server has refused it.
type refusals struct {
	n atomic.Int32
}

// counting is a copy of config whose refused requests for LeaseCandidates, watches aside, are counted by their method.
func counting(config *rest.Config, method string) (*rest.Config, *refusals) {
	r := &refusals{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusForbidden && request.Method == method &&
				strings.HasSuffix(request.URL.Path, "/leasecandidates") && request.URL.Query().Get("watch") == "" {
				r.n.Add(1)
			}
			return response, err
		})
	})
	return config, r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// A candidate that may not create its LeaseCandidate says so once, and tries on: once it may, the coordinator names it.
func TestACandidateThatMayNotPublish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.coordinate()
	config, refused := counting(w.identity("stable-1", "restricted", [2]string{"create", "leasecandidates"}), http.MethodPost)
	stable, canary := w.candidateAs(config, "stable-1", "stable"), w.candidate("canary-1", "canary")
	w.await("another leads", canary.leads.Load)
	w.await("it tries on", func() bool { return refused.n.Load() >= 3 })
	if n := stable.log.Count("permission is missing"); n != 1 || stable.log.Count("leaseCandidate=", "level=WARN") != 1 {
		t.Errorf("it says %d times that it may not:\n%s", n, stable.log.String())
	}
	w.identity("more-rights", "restricted")
	w.await("it leads once it may publish itself", stable.leads.Load)
	if w.leaseCandidate("stable-1") == nil || stable.log.Count("works again") != 1 {
		t.Errorf("it says:\n%s", stable.log.String())
	}
}
