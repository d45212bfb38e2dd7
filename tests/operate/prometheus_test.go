package operate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/prometheus"
)

// alerts is a Prometheus with the alerts of the chart. It is nil if Prometheus is not installed.
type alerts struct {
	*prometheus.Server
	targets string
}

// group is a group of rules.
type group struct {
	Name  string           `json:"name"`
	Rules []map[string]any `json:"rules"`
}

// startPrometheus starts a Prometheus with rules. It scrapes the Pods, and the targets of other jobs.
func startPrometheus(t *testing.T, p *plane, rules []group, jobs ...any) *alerts {
	t.Helper()
	folder := t.TempDir()
	a := &alerts{targets: filepath.Join(folder, "targets.json")}
	p.must(a.scrape(p))
	file := filepath.Join(folder, "rules.yaml")
	text, err := yaml.Marshal(map[string]any{"groups": rules})
	p.must(err)
	p.must(os.WriteFile(file, text, 0o600))
	pilots := map[string]any{"job_name": "pilot", "file_sd_configs": []any{map[string]any{"files": []string{a.targets}, "refresh_interval": "1s"}}}
	a.Server = prometheus.Start(t, map[string]any{
		"global":     map[string]any{"evaluation_interval": "1s", "scrape_interval": "1s", "scrape_timeout": "1s"},
		"rule_files": []string{file}, "scrape_configs": append(jobs, pilots),
	})
	return a
}

// rules returns the groups of rules of the chart for a release in a namespace.
func (p *plane) rules(namespace, values string) []group {
	p.t.Helper()
	text, err := p.Shell(p.t.Context(), p.folder, "helm -n "+namespace+" template stable deploy/charts/pilot "+p.values(values)+
		" --set=monitoring.rules.enabled=true --show-only=templates/monitoring.yaml").Output()
	p.must(err)
	var object struct{ Spec struct{ Groups []group } }
	p.must(yaml.Unmarshal(text, &object))
	return object.Spec.Groups
}

// scrape sets the targets to the present Pods.
func (a *alerts) scrape(p *plane) error {
	groups := []any{}
	for _, pod := range p.Node.Pods() {
		if pod.Address != "" {
			groups = append(groups, map[string]any{
				"targets": []string{net.JoinHostPort(pod.Address, "15014")}, "labels": map[string]string{"namespace": pod.Namespace, "pod": pod.Name},
			})
		}
	}
	text, err := json.Marshal(groups)
	if err == nil {
		err = os.WriteFile(a.targets+".new", text, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(a.targets+".new", a.targets) // Prometheus may read it now
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

// upgrade checks alerts and dashboard in the normal case: each rule is evaluated, each panel shows data, and no alert fires while the
// default revision changes or is active afterwards.
func (a *alerts) upgrade(p *plane) {
	p.t.Helper()
	is := func(expr, want string) {
		p.t.Helper()
		p.shows("upgrade", expr, want, func() string {
			found, err := a.Query(p.t.Context(), expr)
			return fmt.Sprint(found, err)
		})
	}
	is("count(up == 1)", " 4]")
	p.shows("upgrade", "rules", "map[ok:true]", func() string {
		var data struct {
			Groups []struct{ Rules []struct{ Health string } }
		}
		if err := a.Get(p.t.Context(), "rules", nil, &data); err != nil {
			return err.Error()
		}
		health := map[string]bool{}
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				health[rule.Health] = true
			}
		}
		return fmt.Sprint(health)
	})
	for _, revision := range []string{"canary", "stable"} {
		p.must(p.Flip(p.t.Context(), revision))
		is(`count(leader_election_master_status{pod=~"pilot-`+revision+`-.*"} == 1)`, " 2]")
		if revision == "canary" {
			a.checkPanels(p)
		}
	}
	// Refusals at the start of a term count for five minutes.
	is(`count(ALERTS{alertname!="IncumbentWritesRefused"}) or vector(0)`, " 0]")
	is(`count(max_over_time(ALERTS{alertstate="firing"}[1h])) or vector(0)`, " 0]")
}

// mayBeEmpty are panels without data in the normal case.
var mayBeEmpty = []string{"Pending handovers", "Failed requests"}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)

// checkPanels checks that each panel shows data with the labels of its legend. Only metrics of a remote cluster have the label cluster.
func (a *alerts) checkPanels(p *plane) {
	p.t.Helper()
	for _, target := range prometheus.Dashboard(p.t, root) {
		p.shows("upgrade", "panel "+target.Panel, "complete", func() string {
			found, err := a.Query(p.t.Context(), target.Expr)
			if err != nil || len(found) == 0 && !slices.Contains(mayBeEmpty, target.Panel) {
				return fmt.Sprintf("%v, nothing is shown by %s", err, target.Expr)
			}
			for _, s := range found {
				for _, label := range legend.FindAllStringSubmatch(target.Legend, -1) {
					if s.Metric[label[1]] == "" && label[1] != "cluster" {
						return fmt.Sprintf("no label %s in %v", label[1], s.Metric)
					}
				}
			}
			return "complete"
		})
	}
}

// checkAnnotations checks the expanded texts of active alerts.
func (a *alerts) checkAnnotations(t *testing.T) {
	t.Helper()
	var data struct {
		Alerts []struct{ Labels, Annotations map[string]string }
	}
	if err := a.Get(t.Context(), "alerts", nil, &data); err != nil || len(data.Alerts) == 0 {
		t.Fatalf("%d alerts, error %v", len(data.Alerts), err)
	}
	for _, alert := range data.Alerts {
		for key, text := range alert.Annotations {
			if strings.Contains(text, "error expanding") || strings.Contains(text, "no value") || strings.Contains(text, "{{") {
				t.Errorf("%s of %v is %q", key, alert.Labels, text)
			}
		}
	}
}
