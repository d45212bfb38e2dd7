package bootstrap

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMetrics_Values(t *testing.T) {
	s := mustNew(t, goodConfig(), nil)
	s.metrics.Phase("x", "following", "leading", "expired")
	s.metrics.Call("x", "renew", "leading", "ok", 7*time.Millisecond)
	s.metrics.Call("x", "renew", "leading", "unknown", time.Second)
	for range 2 {
		s.metrics.Call("x", "renew", "leading", "conflict", time.Millisecond)
	}
	s.metrics.Term("x", true, "lease-expired")
	s.metrics.Term("y", true, "lock-free")
	s.metrics.Term("y", false, "superseded")
	for i, what := range []k8sleaderelection.Interval{
		k8sleaderelection.Drain, k8sleaderelection.Handover, k8sleaderelection.HandoverGiven, k8sleaderelection.Leaderless, k8sleaderelection.WitnessRelease,
	} {
		s.metrics.ObserveDuration("x", what, time.Duration(i+1)*time.Second)
	}
	s.metrics.ObserveDuration("x", k8sleaderelection.Interval("unknown"), time.Second) // is ignored
	_, _, text := get(t, s, "/metrics")
	for _, want := range []string{
		`leader_election_master_status{name="x"} 1`, `leader_election_master_status{name="y"} 0`,
		`leader_election_slowpath_total{name="x"} 2`,
		`incumbent_election_phase_changes_total{from="following",name="x",reason="expired",to="leading"} 1`,
		`incumbent_election_requests_total{name="x",result="ok",role="leading",verb="renew"} 1`,
		`incumbent_election_request_seconds_count{name="x",verb="renew"} 4`,
		`incumbent_election_renew_seconds_bucket{name="x",le="0.01"} 1`,
		`incumbent_election_renew_seconds_count{name="x"} 1`,
		`incumbent_election_transitions_total{change="began",name="x",reason="lease-expired"} 1`,
		`incumbent_election_transitions_total{change="ended",name="y",reason="superseded"} 1`,
		`incumbent_election_drain_seconds_bucket{name="x",le="1"} 1`,
		`incumbent_election_drain_seconds_sum{name="x"} 1`, `incumbent_election_handover_seconds_sum{name="x"} 2`,
		`incumbent_election_handover_leader_seconds_sum{name="x"} 3`, `incumbent_election_leaderless_seconds_sum{name="x"} 4`,
		`incumbent_election_witness_release_seconds_sum{name="x"} 5`, `incumbent_election_witness_releases_total{name="x"} 1`,
		`leader_election_master_status{name="istio-leader"} 0`,
		`incumbent_election_validity_left_seconds{name="istio-namespace-controller-election"} 0`,
		`incumbent_election_validity_seconds{name="istio-namespace-controller-election"} 15`,
		`incumbent_election_candidate{name="istio-namespace-controller-election",revision="stable"} 0`,
		`incumbent_election_handover_wait_seconds{name="istio-namespace-controller-election"} 0`,
		`incumbent_election_missing_kinds{name="istio-gateway-deployment-stable"} 0`,
		`incumbent_election_refused_writes_total{by="gate",name="istio-namespace-controller-election"} 0`,
		`incumbent_build_info{goversion="` + ReadBuild().Go + `"`, "go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestMetrics_Witness(t *testing.T) {
	const metric = "incumbent_witness_connected"
	if _, _, text := get(t, mustNew(t, goodConfig(), nil), "/metrics"); strings.Contains(text, metric) {
		t.Error("a metric without a witness")
	}
	config := goodConfig()
	config.WitnessMode = WitnessSocket
	config.WitnessSocket = filepath.Join(t.TempDir(), "socket")
	if _, _, text := get(t, mustNew(t, config, nil), "/metrics"); !strings.Contains(text, "\n"+metric+" 0\n") {
		t.Errorf("no %s of a witness that does not respond", metric)
	}
}
