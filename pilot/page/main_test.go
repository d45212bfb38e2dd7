package page

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/inspect"
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
	}
	lease := Election{
		ID: "istio-status-leader", Namespace: "istio-system", Lock: "istio-status-leader", Kind: "Lease",
		Leader: "a", Key: "stable", Acting: true, HandsOver: true, Ranked: true, LeaseSeconds: 30,
		Phase: "leading", Leading: true, ValidityLeft: 12 * time.Second, Validity: 15 * time.Second,
		Transitions: 3, Token: "4711", Fence: "in effect", Gate: "open", Candidates: candidates,
	}
	peer := Election{
		ID: "istio-leader", Namespace: "istio-system", Lock: "istio-leader", Kind: "ConfigMap",
		Leader: "p", Key: "^canary", Acting: true, Ranked: true, LeaseSeconds: 30, Phase: "following",
		Transitions: 7, Fence: "binding is missing", FenceBroken: true, Gate: "shut",
	}
	peer.Hold = &inspect.Hold{Requester: "ann", Reason: "pause", Seconds: 60}
	free := Election{ID: "istio-gateway-deployment", Namespace: "istio-system", Lock: "istio-gateway-deployment-stable", Kind: "Lease", Candidates: []inspect.Candidate{}}
	return State{
		Identity: "a", Revision: "stable", Version: "1.0",
		Default:   k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true},
		Elections: []Election{lease, peer, free},
	}
}

// hostile returns a state with markup in all values that other processes can write.
func hostile() State {
	const markup = `<script>alert("x")</script>' onload=x`
	return State{Identity: markup, Revision: markup, Version: markup, Elections: []Election{{
		ID: markup, Namespace: markup, Lock: markup, Kind: markup, Cluster: markup, Leader: markup, Key: markup,
		Leading: true, Acting: true, Validity: time.Second, Fence: markup, Gate: markup, Problem: markup, Token: markup,
		Hold:       &inspect.Hold{Requester: markup, Reason: markup},
		Candidates: []inspect.Candidate{{Identity: "b" + markup, Key: markup, Witness: markup}},
	}}}
}

func frameOf(at time.Time, s State, h *history) *frame {
	h.observe(at, s)
	return &frame{at: at, state: s, history: h.picture(), next: make(chan struct{}), rendered: map[query][]byte{}, deadlines: deadlines(at, s, nil)}
}
