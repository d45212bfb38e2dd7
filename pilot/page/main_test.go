package page

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// sample is a state with one election of each sort.
func sample() State {
	candidates := []inspect.Candidate{
		{Identity: "a", Key: "stable", Warm: true, Fit: true, Witness: "parent"},
		{Identity: "b", Key: "canary", Warm: true, Fit: true, Witness: "none"},
		{Identity: "c", Key: "^canary", Fit: true},
		{Identity: "d", Key: "stable", Warm: true},
		{Identity: "e", Key: "stable", Warm: true, Fit: true, Late: true},
		{Identity: "f", Key: "stable", Warm: true, Fit: true, BackingOff: true},
	}
	lease := electionOf("istio-status-leader", inspect.Lease, "a", "stable", leaderelection.Status{Validity: 15 * time.Second, Status: k8sleaderelection.Status{
		Phase: "leading", Leading: true, ValidFor: 12 * time.Second, Term: k8sleaderelection.Term{Token: 4711},
	}})
	lease.State = inspect.Leads
	lease.HandsOver = true
	lease.Transitions = 3
	lease.Process.Fence = &fence.State{InEffect: true, Leading: true, Answer: fence.Admitted}
	lease.Process.Gate = "open"
	peer := electionOf("istio-leader", inspect.ConfigMap, "p", "^canary", leaderelection.Status{Status: k8sleaderelection.Status{Phase: "following"}})
	peer.Transitions = 7
	peer.Process.Fence = &fence.State{Answer: fence.Unclear, Detail: "binding is missing"}
	peer.Process.Gate = "shut"
	peer.Hold = &record.Hold{Requester: "ann", Reason: "pause", Seconds: 60}
	free := electionOf("istio-gateway-deployment", inspect.Lease, "", "", leaderelection.Status{})
	free.Name += "-stable"
	free.Ranked = false
	synced := k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true}
	return State{
		Identity: "a", Revision: "stable", Version: "1.0", Default: synced,
		Elections: []inspect.Election{lease.With(candidates, synced), peer.With(nil, synced), free.With([]inspect.Candidate{}, synced)},
	}
}

// electionOf returns an election whose holder acts.
func electionOf(id, lock, holder, key string, s leaderelection.Status) inspect.Election {
	s.ElectionID = id
	s.Acting = holder != ""
	e := inspect.Election{
		Namespace: "istio-system", Name: id, Lock: lock, State: inspect.Free, Holder: holder, Key: key, Ranked: true, LeaseSeconds: 30,
		Process: &inspect.Process{Status: s},
	}
	if holder != "" {
		e.State = inspect.Holds
	}
	e.Revision, e.Remote = k8sleaderelection.ParseRevisionKey(key)
	return e
}

// hostile returns a state with markup in all values that other processes can write.
func hostile() State {
	const markup = `<script>alert("x")</script>' onload=x`
	e := electionOf(markup, markup, markup, markup, leaderelection.Status{
		Validity: time.Second, Status: k8sleaderelection.Status{Leading: true, Reason: markup, Rejected: markup},
	})
	e.Namespace = markup
	e.Cluster = markup
	e.Problems = []string{markup}
	e.Process.Fence = &fence.State{Detail: markup, Answer: fence.Unclear}
	e.Process.Gate = markup
	e.Hold = &record.Hold{Requester: markup, Reason: markup}
	e = e.With([]inspect.Candidate{{Identity: "b" + markup, Key: markup, Witness: markup}}, k8sleaderelection.DefaultRevision{})
	return State{Identity: markup, Revision: markup, Version: markup, Elections: []inspect.Election{e}}
}

// frameOf returns a frame in which the validity is counted from at.
func frameOf(at time.Time, s State, h *history) *frame {
	for _, e := range s.Elections {
		e.Process.ValidUntil = at.Add(e.Process.ValidFor)
	}
	h.observe(at, s)
	return &frame{at: at, state: s, history: h.picture(), next: make(chan struct{}), rendered: map[query][]byte{}, deadlines: deadlines(s, nil)}
}
