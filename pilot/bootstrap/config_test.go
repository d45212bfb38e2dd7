package bootstrap

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

func goodConfig() Config {
	return Config{
		RESTConfig: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "istio-system", Identity: "pilot-a", Revision: "stable",
		Address: "127.0.0.1:0", CABundle: "/ca.pem", Logger: quiet,
	}
}

func TestWrongConfigurationsNameTheFlag(t *testing.T) {
	for flag, spoil := range map[string]func(*Config){
		"--namespace":           func(c *Config) { c.Namespace = "" },
		"--namespace=\"No\"":    func(c *Config) { c.Namespace = "No" },
		"--identity is empty":   func(c *Config) { c.Identity = "" },
		"--identity=":           func(c *Config) { c.Identity = strings.Repeat("x", 254) },
		"--revision=\"1.2\"":    func(c *Config) { c.Revision = "1.2" },
		"--address=":            func(c *Config) { c.Address = "15014" },
		"--ca-bundle":           func(c *Config) { c.CABundle = "" },
		"--excluded-namespaces": func(c *Config) { c.ExcludedNamespaces = []string{"A"} },
		"--ingress-controller-mode: \"sometimes\" is none of OFF, STRICT, DEFAULT": func(c *Config) { c.IngressMode = "sometimes" },
		"--ingress-service=\"A.b\"": func(c *Config) { c.IngressService = "A.b" },
		"--lock":                    func(c *Config) { c.Lock = "endpoints" },
		"--shutdown-timeout":        func(c *Config) { c.ShutdownTimeout = -time.Second },
		"--kube-burst":              func(c *Config) { c.Burst = -1 },
		"--lease-duration=-1s":      func(c *Config) { c.LeaseDuration = -time.Second },
		"--renew-deadline":          func(c *Config) { c.RenewDeadline = time.Hour },
		"--retry-period":            func(c *Config) { c.RetryPeriod = time.Hour },
		"--lease-duration":          func(c *Config) { c.LeaseDuration = 1500 * time.Millisecond },
		"remote cluster: reading kubeconfig /no/such/file: no such file or directory; give --remote-kubeconfig=FILE": func(c *Config) { c.RemoteKubeconfig = "/no/such/file" },
		"no-such-file": func(c *Config) { c.RESTConfig, c.Kubernetes = nil, kube.Source{Path: "/no-such-file"} },
	} {
		t.Run(flag, func(t *testing.T) {
			config := goodConfig()
			spoil(&config)
			_, err := New(config)
			if err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("error %v does not name it", err)
			}
		})
	}
	if _, err := New(goodConfig()); err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestPagesBeforeTheServerRuns(t *testing.T) {
	s, err := New(goodConfig())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/":                {200, "/debug/elections"},
		"/healthz":         {200, "ok"},
		"/readyz":          {503, errNotReached.Error()},
		"/metrics":         {200, `leader_election_master_status{name="istio-namespace-controller-election"} 0`},
		"/debug/elections": {200, `"id": "istio-namespace-controller-election"`},
		"/elsewhere":       {404, ""},
	} {
		if code, text := get(t, s, path); code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s answers %d:\n%s", path, code, text)
		}
	}
	if s.Address() != "" {
		t.Errorf("it listens on %s", s.Address())
	}
	s.stopping.Store(true)
	if code, _ := get(t, s, "/readyz"); code != 503 {
		t.Errorf("ready while stopping: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	s, err := New(goodConfig())
	if err != nil {
		t.Fatal(err)
	}
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
		k8sleaderelection.Drain, k8sleaderelection.Handover, k8sleaderelection.HandoverGiven, k8sleaderelection.Leaderless,
	} {
		s.metrics.ObserveDuration("x", what, time.Duration(i+1)*time.Second)
	}
	_, text := get(t, s, "/metrics")
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
		`incumbent_election_handover_given_seconds_sum{name="x"} 3`, `incumbent_election_leaderless_seconds_sum{name="x"} 4`,
		`leader_election_master_status{name="istio-leader"} 0`,
		`incumbent_election_cover_left_seconds{name="istio-namespace-controller-election"} 0`,
		`incumbent_election_cover_seconds{name="istio-namespace-controller-election"} 15`,
		`incumbent_election_candidate{name="istio-namespace-controller-election",revision="stable"} 0`,
		`incumbent_election_handover_wait_seconds{name="istio-namespace-controller-election"} 0`,
		`incumbent_election_definitions_missing{name="istio-gateway-deployment-stable"} 0`,
		`incumbent_election_refused_writes_total{by="gate",name="istio-namespace-controller-election"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}
