package coordinated

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// logged returns the credentials of a Pod with a log of its requests.
func (w *world) logged(pod string) (*rest.Config, *harness.Log) {
	w.t.Helper()
	config := w.identity(pod, "pilot")
	sent := &harness.Log{}
	config.Wrap(harness.Requests(sent))
	return config, sent
}

// TestRequests counts requests. There is a time in which followers and coordinator send none. If the default revision changes, the
// coordinator writes the lock once and pings each candidate at most once in five seconds.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, coordinator := w.logged("coordinator")
	w.coordinateAs(config)
	candidates, all := map[string]*candidate{}, map[string]*harness.Log{"coordinator": coordinator}
	for _, revision := range []string{"stable", "canary", "third"} {
		config, sent := w.logged(revision)
		all[revision] = sent
		candidates[revision] = w.candidateAs(config, revision, revision)
		w.await("candidate is published", func() bool { return w.leaseCandidate(revision) != nil })
	}
	w.await("the default revision leads", candidates["stable"].leads.Load)
	w.awaitQuiet("stable", all)
	for _, to := range []string{"canary", "third", "stable"} {
		began := time.Now()
		w.revision.Set(to)
		w.await(to+" leads", candidates[to].leads.Load)
		w.await("response to the coordinator", func() bool { return coordinator.Count("PUT ", "/leases/x 200") > 0 })
		sent := coordinator.Take()
		// A ping, a preference and a nomination last five seconds. If the handover needs longer, the coordinator repeats them.
		rounds := 1 + int(time.Since(began)/(5*time.Second))
		asked := harness.Count(sent, "PUT ", "/leasecandidates/", " 200 ")
		written := harness.Count(sent, "PUT ", "/leases/x 200")
		others := harness.Count(sent) - harness.Count(sent, "PUT ", "/leasecandidates/") - harness.Count(sent, "PUT ", "/leases/x ")
		if asked > 3*rounds || written > 2*rounds-1 || others > 0 {
			t.Errorf("change to %s in %v: the coordinator sent %q", to, time.Since(began), sent)
		}
		w.awaitQuiet(to, all)
	}
}

// awaitQuiet waits for a time in which the leader renews six times, and sends and receives nothing else. A follower polls only
// while the leader is late.
func (w *world) awaitQuiet(leader string, all map[string]*harness.Log) {
	w.t.Helper()
	for _, sent := range all {
		sent.Take()
	}
	w.await("only "+leader+" sends requests", func() bool {
		if all[leader].Count("PUT ", "/leases/x 200") < 6 {
			return false
		}
		quiet := true
		for pod, log := range all {
			if sent := log.Take(); pod != leader && sent != "" || harness.Count(sent, "leasecandidates") > 0 {
				w.t.Logf("%s sent %q", pod, sent)
				quiet = false
			}
		}
		return quiet
	})
}
