package operate

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// prometheus is a running Prometheus with the alerts of the chart. It is nil if Prometheus is not installed.
type prometheus struct{ address, targets string }

func startPrometheus(t *testing.T, p *plane) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal("no prometheus: apt-get install --no-install-recommends prometheus")
	case err != nil:
		t.Log("no prometheus: the alerts are not checked")
		return nil
	}
	folder := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		p.must(err)
		file := filepath.Join(folder, name)
		p.must(os.WriteFile(file, text, 0o600))
		return file
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	p.must(err)
	prom := &prometheus{address: free.Addr().String(), targets: filepath.Join(folder, "targets.json")}
	p.must(free.Close())
	prom.scrape(t, p)
	config := write("prometheus.yaml", map[string]any{
		"global":     map[string]any{"evaluation_interval": "1s", "scrape_interval": "1s", "scrape_timeout": "1s"},
		"rule_files": []string{write("rules.yaml", map[string]any{"groups": p.rules()})},
		"scrape_configs": []any{map[string]any{
			"job_name": "pilot", "file_sd_configs": []any{map[string]any{"files": []string{prom.targets}, "refresh_interval": "1s"}},
		}},
	})
	harness.Start(t, "prometheus", nil, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+prom.address, "--log.level=warn")
	return prom
}

// rules returns the groups of rules of the chart.
func (p *plane) rules() []any {
	text, err := p.Helm(p.t.Context(), "template", "stable", filepath.Join(p.folder, "deploy", "charts", "pilot"), "--set=image=pilot,caBundle.file=/ca.pem,monitoring.rules.enabled=true",
		"--show-only=templates/monitoring.yaml")
	p.must(err)
	var object struct{ Spec struct{ Groups []any } }
	p.must(yaml.Unmarshal([]byte(text), &object))
	return object.Spec.Groups
}

// scrape sets the targets to the present Pods.
func (prom *prometheus) scrape(t *testing.T, p *plane) {
	t.Helper()
	groups := []any{}
	for _, pod := range p.Node.Pods() {
		if pod.Address != "" {
			groups = append(groups, map[string]any{
				"targets": []string{net.JoinHostPort(pod.Address, "15014")}, "labels": map[string]string{"namespace": rollout.Namespace, "pod": pod.Name},
			})
		}
	}
	text, err := json.Marshal(groups)
	p.must(err)
	p.must(os.WriteFile(prom.targets+".new", text, 0o600))
	p.must(os.Rename(prom.targets+".new", prom.targets)) // Prometheus may read it now
}

// active returns the pending and firing alerts that doctor also reports: those about no leader and the fence.
func (prom *prometheus) active(t *testing.T) string {
	t.Helper()
	_, text := harness.Page(t, prom.address, "/api/v1/alerts")
	var answer struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return "Prometheus has not started"
	}
	names := []string{}
	for _, a := range answer.Data.Alerts {
		if name := a.Labels["alertname"]; name == "IncumbentFenceNotInEffect" || name == "IncumbentNoLeader" && a.Labels["name"] == watched {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
