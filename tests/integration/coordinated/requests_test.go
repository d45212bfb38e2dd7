package coordinated

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/client-go/rest"

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

// TestRequests counts requests. There is a time in which followers and coordinator send none. If the default revision changes, the
// coordinator writes the lock once and pings each candidate at most once in five seconds.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, coordinator := wired(w.identity("coordinator", "pilot"))
	w.coordinateAs(config)
	candidates, wires := map[string]*candidate{}, map[string]*wire{"coordinator": coordinator}
	for _, revision := range []string{"stable", "canary", "third"} {
		config, wire := wired(w.identity(revision, "pilot"))
		wires[revision] = wire
		candidates[revision] = w.candidateAs(config, revision, revision)
		w.await("candidate is published", func() bool { return w.leaseCandidate(revision) != nil })
	}
	w.await("the default revision leads", candidates["stable"].leads.Load)
	w.awaitQuiet("stable", wires)
	for _, to := range []string{"canary", "third", "stable"} {
		began := time.Now()
		w.revision.Set(to)
		w.await(to+" leads", candidates[to].leads.Load)
		w.await("response to the coordinator", func() bool { return coordinator.count("PUT", "/leases/x OK") > 0 })
		sent := coordinator.take()
		// A ping, a preference and a nomination last five seconds. If the handover needs longer, the coordinator repeats them.
		rounds := 1 + int(time.Since(began)/(5*time.Second))
		if asked, written := count(sent, "PUT", "/leasecandidates/", "OK"), count(sent, "PUT", "/leases/x OK"); asked > 3*rounds ||
			written > 2*rounds-1 || len(sent) != count(sent, "PUT", "/leasecandidates/")+count(sent, "PUT", "/leases/x ") {
			t.Errorf("change to %s in %v: the coordinator sent %q", to, time.Since(began), sent)
		}
		w.awaitQuiet(to, wires)
	}
}

// awaitQuiet waits for a time in which the leader renews six times, and sends and receives nothing else. A follower polls only
// while the leader is late.
func (w *world) awaitQuiet(leader string, wires map[string]*wire) {
	w.t.Helper()
	for _, wire := range wires {
		wire.take()
	}
	w.await("only "+leader+" sends requests", func() bool {
		if wires[leader].count("PUT", "/leases/x OK") < 6 {
			return false
		}
		quiet := true
		for pod, wire := range wires {
			if sent := wire.take(); pod != leader && len(sent) > 0 || count(sent, "leasecandidates") > 0 {
				w.t.Logf("%s sent %q", pod, sent)
				quiet = false
			}
		}
		return quiet
	})
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
	versions := record[*coordinationv1beta1.LeaseCandidate](w, w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home).Watch, "a-1.x")
	unfit := func(c *coordinationv1beta1.LeaseCandidate) bool { return c.Labels[coordination.FitLabel] == "false" }
	operator, err := first.election.Operator("test")
	if err != nil {
		t.Fatal(err)
	}
	// A slow machine also has enough time to publish it.
	if err := operator.StepDown(t.Context(), "test", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	w.await("a-1 is published as unfit", func() bool { return slices.ContainsFunc(versions.list(), unfit) })
	w.await("b-1 leads", second.leads.Load)
	w.await("a-1 is published as fit again", func() bool { return !unfit(w.leaseCandidate("a-1")) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
