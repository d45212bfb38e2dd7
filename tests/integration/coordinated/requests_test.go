package coordinated

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// wire records the requests of a process, including watches and requests without a response.
type wire struct {
	mu   sync.Mutex
	sent []string
}

// wired returns a copy of config that records requests.
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
			path, verb := request.URL.Path, request.Method
			if request.URL.Query().Get("watch") != "" {
				verb = "WATCH"
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.sent = append(w.sent, verb+" "+path[strings.LastIndex(path, "/namespaces/")+1:]+" "+outcome)
			return response, err
		})
	})
	return config, w
}

// count returns the number of requests with all words since the last take.
func (w *wire) count(words ...string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return count(w.sent, words...)
}

// take returns the requests since the last call.
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

// TestRequests counts requests. Without changes, followers and coordinator send none. If the default revision changes, the
// coordinator writes the lock once and pings each candidate at most once.
func TestRequests(t *testing.T) {
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
		w.await("candidate is published", func() bool { return w.leaseCandidate(pod) != nil })
	}
	// quiet waits for five renewals, and fails if another process sent a request.
	quiet := func(leader string) {
		t.Helper()
		began := len(h.versions())
		renewed := func(n int) func() bool {
			return func() bool { return len(h.versions()) >= began+n && h.renewals(leader+".x") >= n }
		}
		w.await("change completed", renewed(2))
		for _, wire := range wires {
			wire.take()
		}
		w.await("leader renews", renewed(7))
		for pod, wire := range wires {
			switch sent := wire.take(); {
			case pod != leader && len(sent) > 0:
				t.Errorf("%s sent %q", pod, sent)
			case pod == leader && (count(sent, "PUT", "/leases/x OK") < 4 || count(sent, "leasecandidates") > 0):
				t.Errorf("leader %s sent %q", pod, sent)
			}
		}
	}
	w.await("the default revision leads", candidates["stable-1"].leads.Load)
	quiet("stable-1")
	for _, to := range []string{"canary", "third", "stable"} {
		w.revision.Set(to)
		w.await(to+" leads", candidates[to+"-1"].leads.Load)
		w.await("leader renews", func() bool { return h.renewals(to+"-1.x") >= 2 })
		sent := coordinator.take()
		if asked, preferred := count(sent, "PUT", "/leasecandidates/", "OK"), count(sent, "PUT", "/leases/x OK"); asked > 3 || preferred != 1 ||
			len(sent) != asked+preferred+count(sent, "Conflict") {
			t.Errorf("change to %s: the coordinator sent %q", to, sent)
		}
		quiet(to + "-1")
	}
}

// TestStepDown_Unfit checks that a candidate is published as unfit during the cool-down that an operator requested. Otherwise the coordinator
// would name it again, and it would release the lock each time.
func TestStepDown_Unfit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.coordinate()
	first := w.candidate("a-1", "stable")
	w.await("a-1 leads", first.leads.Load)
	second := w.candidate("b-1", "stable")
	w.await("b-1 is published", func() bool { return w.leaseCandidate("b-1") != nil })
	operator, err := first.election.Operator("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.StepDown(t.Context(), "test", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	fit := func() string { return w.leaseCandidate("a-1").Labels[coordination.FitLabel] }
	w.await("a-1 is published as unfit", func() bool { return fit() == "false" })
	w.await("b-1 leads", second.leads.Load)
	w.await("a-1 is published as fit again", func() bool { return fit() != "false" })
	if !second.leads.Load() {
		t.Error("b-1 does not lead after the cool-down of a-1")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
