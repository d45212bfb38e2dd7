package operate

import (
	"cmp"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/prometheus"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// alerts is a Prometheus with the alerts of the chart. It is nil if Prometheus is not installed.
type alerts struct {
	*prometheus.Server
	targets string
}

func startPrometheus(t *testing.T, p *plane) *alerts {
	t.Helper()
	if prometheus.Installed(t, "prometheus") == "" {
		t.Log("no prometheus: the alerts are not checked")
		return nil
	}
	folder := t.TempDir()
	a := &alerts{targets: filepath.Join(folder, "targets.json")}
	a.scrape(p)
	rules := filepath.Join(folder, "rules.yaml")
	text, err := yaml.Marshal(map[string]any{"groups": p.rules()})
	p.must(err)
	p.must(os.WriteFile(rules, text, 0o600))
	a.Server = prometheus.Start(t, map[string]any{
		"global":     map[string]any{"evaluation_interval": "1s", "scrape_interval": "1s", "scrape_timeout": "1s"},
		"rule_files": []string{rules},
		"scrape_configs": []any{map[string]any{
			"job_name": "pilot", "file_sd_configs": []any{map[string]any{"files": []string{a.targets}, "refresh_interval": "1s"}},
		}},
	})
	return a
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
func (a *alerts) scrape(p *plane) {
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
	p.must(os.WriteFile(a.targets+".new", text, 0o600))
	p.must(os.Rename(a.targets+".new", a.targets)) // Prometheus may read it now
}

// active returns the pending and firing alerts that doctor also reports: those about no leader and the fence.
func (a *alerts) active(t *testing.T) string {
	t.Helper()
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	if err := a.Get(t.Context(), "alerts", nil, &data); err != nil {
		return err.Error()
	}
	names := []string{}
	for _, alert := range data.Alerts {
		if name := alert.Labels["alertname"]; name == "IncumbentFenceNotInEffect" || name == "IncumbentNoLeader" && alert.Labels["name"] == watched {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(slices.Compact(names), ", "), none)
}
