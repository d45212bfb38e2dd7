package coordinated

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// wire is what a process has sent: each request, answered or not, watches as well.
type wire struct {
	mu   sync.Mutex
	sent []string
}

// wired is a copy of config whose requests are noted.
func wired(config *rest.Config) (*rest.Config, *wire) {
	w := &wire{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			outcome := "failed"
			if err == nil {
				outcome = http.StatusText(response.StatusCode)
			}
			path := request.URL.Path
			w.mu.Lock()
			defer w.mu.Unlock()
			w.sent = append(w.sent, request.Method+" "+path[strings.LastIndex(path, "/namespaces/")+1:]+" "+outcome)
			return response, err
		})
	})
	return config, w
}

// take is what was sent since the last take.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

func count(sent []string, words ...string) (n int) {
	for _, one := range sent {
		all := true
		for _, word := range words {
			all = all && strings.Contains(one, word)
		}
		if all {
			n++
		}
	}
	return n
}

// While a leader renews and nothing changes, neither the candidates that follow nor the coordinator send anything: no GET, no
// watch, no write without effect. A flip takes one write of the coordinator to the lock, and before that one to each candidate that has not answered of late.
func TestRequestsOfAFlipAndOfNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.history()
	config, coordinator := wired(w.identity("coordinator", "pilot"))
	w.coordinateAs(config)
	candidates, wires := map[string]*candidate{}, map[string]*wire{"coordinator": coordinator}
	for _, revision := range []string{"stable", "canary", "third"} {
		pod := revision + "-1"
		config, wire := wired(w.identity(pod, "pilot"))
		wires[pod] = wire
		candidates[pod] = w.candidateAs(config, pod, revision, func(c *leaderelection.Config) { c.RetryPeriod = 300 * time.Millisecond })
		w.await("it is published", func() bool { return w.leaseCandidate(pod) != nil })
	}
	// quiet waits until a leader has renewed five times, and fails where another process has sent anything in that time.
	quiet := func(leader string) {
		t.Helper()
		began := len(h.versions())
		renewed := func(n int) func() bool {
			return func() bool { return len(h.versions()) >= began+n && h.renewals(leader+".x") >= n }
		}
		w.await("what the change has led to is over", renewed(2))
		for _, wire := range wires {
			wire.take()
		}
		w.await("it renews", renewed(7))
		for pod, wire := range wires {
			switch sent := wire.take(); {
			case pod != leader && len(sent) > 0:
				t.Errorf("%s sends %q", pod, sent)
			case pod == leader && (count(sent, "PUT", "/leases/x OK") < 4 || count(sent, "leasecandidates") > 0):
				t.Errorf("the leader %s sends %q", pod, sent)
			}
		}
	}
	w.await("the default revision leads", candidates["stable-1"].leads.Load)
	quiet("stable-1")
	for _, to := range []string{"canary", "third", "stable"} {
		w.revision.Set(to)
		w.await(to+" leads", candidates[to+"-1"].leads.Load)
		w.await("it renews", func() bool { return h.renewals(to+"-1.x") >= 2 })
		sent := coordinator.take()
		if asked, preferred := count(sent, "PUT", "/leasecandidates/", "OK"), count(sent, "PUT", "/leases/x OK"); asked > 3 || preferred != 1 ||
			len(sent) != asked+preferred+count(sent, "Conflict") {
			t.Errorf("for the flip to %s the coordinator sends %q", to, sent)
		}
		quiet(to + "-1")
	}
}
