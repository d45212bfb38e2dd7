package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	testprometheus "incumbent.dev/incumbent/internal/testutil/prometheus"
)

const noLeader = "IncumbentNoLeader"

func TestMonitoringObjects(t *testing.T) {
	t.Parallel()
	if off := rendered(t, "gate=true"); len(off.rules)+len(off.monitors)+len(off.dashboard) > 0 {
		t.Errorf("by default: %+v", off)
	}
	if off := rendered(t, everything+",elections.enabled=false"); len(off.rules) > 0 || len(off.monitors) != 1 {
		t.Errorf("without elections: rules %+v and %d ServiceMonitors", off.rules, len(off.monitors))
	}
	on := rendered(t, everything+",monitoring.rules.noLeaderFor=9m,monitoring.rules.labels.release=prom,monitoring.serviceMonitor.labels.release=prom,monitoring.serviceMonitor.interval=7s")
	if len(on.rules) != 1 || len(on.monitors) != 1 || len(on.dashboard) != 1 {
		t.Fatalf("%d rules, %d ServiceMonitors and %d dashboards", len(on.rules), len(on.monitors), len(on.dashboard))
	}
	if on.rules[0].Labels["release"] != "prom" || on.monitors[0].Labels["release"] != "prom" || on.dashboard[0].Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v, %v and %v", on.rules[0].Labels, on.monitors[0].Labels, on.dashboard[0].Labels)
	}
	for _, rule := range on.rules[0].Spec.Groups[0].Rules {
		if rule.Alert == noLeader && *rule.For != "9m" {
			t.Errorf("%s has for: %s", rule.Alert, *rule.For)
		}
	}
	e := on.monitors[0].Spec.Endpoints
	if len(e) != 1 || e[0].Interval != "7s" || e[0].Path != "/metrics" {
		t.Fatalf("endpoints %+v", e)
	}
	// The monitor selects the Service, which selects the Pods.
	service, pods := on.services[0], on.deployments[0].Spec.Template
	if port := service.Spec.Ports[0]; e[0].Port != port.Name || port.TargetPort.StrVal != pods.Spec.Containers[0].Ports[0].Name {
		t.Errorf("endpoint %+v, port %+v of the Service, and ports %+v of the container", e[0], port, pods.Spec.Containers[0].Ports)
	}
	for what, c := range map[string]struct{ selector, labels map[string]string }{
		"monitor": {on.monitors[0].Spec.Selector.MatchLabels, service.Labels}, "Service": {service.Spec.Selector, pods.Labels},
	} {
		if !labels.SelectorFromSet(c.selector).Matches(labels.Set(c.labels)) || len(c.selector) == 0 {
			t.Errorf("%s selects %v, not %v", what, c.selector, c.labels)
		}
	}
	file, err := os.ReadFile(filepath.Join(chart, "files", "dashboard.json"))
	if err != nil || strings.TrimSpace(on.dashboard[0].Data["incumbent.json"]) != strings.TrimSpace(string(file)) {
		t.Errorf("the dashboard differs from the file (%v)", err)
	}
}

// The alerts on the metrics of kube-state-metrics do not need those of the servers. They exist for each lock that is a Lease.
func TestRules_Leases(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		byLeases:                       "istio-gateway-deployment-stable istio-gateway-status-leader-stable istio-leader istio-namespace-controller-election",
		byLeases + ",ingress.mode=OFF": "istio-gateway-deployment-stable istio-gateway-status-leader-stable istio-namespace-controller-election",
		"monitoring.rules.leases=true": "istio-gateway-deployment-stable istio-gateway-status-leader-stable",
		byLeases + ",replicas=0":       "",
		byLeases + ",remoteKubeconfigSecret=there,monitoring.rules.noLeaderFor=9m": "istio-gateway-deployment-stable istio-gateway-status-leader-stable istio-leader istio-namespace-controller-election",
	} {
		r := rendered(t, set).rules
		if len(r) != 1 || len(r[0].Spec.Groups) != 1 || r[0].Spec.Groups[0].Name != "incumbent-leases" {
			t.Fatalf("with %q: %+v", set, r)
		}
		got := map[string][]string{}
		for _, rule := range r[0].Spec.Groups[0].Rules {
			got[rule.Alert] = append(got[rule.Alert], rule.Labels["name"])
			if wanted := strings.Contains(set, "9m"); rule.Alert == "IncumbentNoHolder" && wanted != (*rule.For == "9m") {
				t.Errorf("with %q: %s has for: %s", set, rule.Alert, *rule.For)
			}
		}
		for _, alert := range []string{"IncumbentLockNotRenewed", "IncumbentNoHolder"} {
			if slices.Sort(got[alert]); strings.Join(got[alert], " ") != want {
				t.Errorf("with %q: %s for %q, want %q", set, alert, got[alert], want)
			}
		}
	}
	if r := rendered(t, everything+",monitoring.rules.leases=true").rules; len(r) != 1 || len(r[0].Spec.Groups) != 2 {
		t.Errorf("both groups: %+v", r)
	}
}

func TestRules_NoLeaderPerElection(t *testing.T) {
	t.Parallel()
	for set, want := range map[string][]string{
		"": {"istio-gateway-deployment-stable", "istio-gateway-status-leader-stable", "istio-leader", "istio-namespace-controller-election"},
		",gatewayAPI.enabled=false,ingress.mode=OFF": {"istio-namespace-controller-election"},
		",gatewayAPI.enabled=false,ingress.mode=OFF,remoteKubeconfigSecret=there": {
			"istio-namespace-controller-election", "istio-namespace-controller-election of remote",
		},
		",replicas=0": nil,
		",gatewayAPI.deployment=false,elections.lock=lease,revision=canary": {"istio-gateway-status-leader-canary", "istio-leader", "istio-namespace-controller-election"},
	} {
		var got []string
		for _, rule := range alerts(t, everything+set) {
			if rule.Alert != noLeader {
				continue
			}
			name := rule.Labels["name"]
			if cluster := rule.Labels["cluster"]; cluster != "" {
				name += " of " + cluster
			}
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("with %q: rules for %q, want %q", set, got, want)
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^### (Incumbent\w+)$`)
	placeholder = regexp.MustCompile(`the-(namespace|election|cluster)`)
	variable    = regexp.MustCompile(`\{\{[^}]*\}\}`)
	label       = regexp.MustCompile(`\$labels\.(\w+)`)
)

// monitoringPage returns docs/monitoring.md.
func monitoringPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestAlertAnnotations checks texts, labels and the section in docs/monitoring.md of each alert.
func TestAlertAnnotations(t *testing.T) {
	t.Parallel()
	var sections []string
	for _, found := range heading.FindAllStringSubmatch(monitoringPage(t), -1) {
		sections = append(sections, found[1])
	}
	var there []string
	const runbooks = ",remoteKubeconfigSecret=there,monitoring.rules.runbooks=https://here.example/alerts"
	for _, rule := range slices.Concat(alerts(t, everything+runbooks), alerts(t, byLeases+runbooks)) {
		if !slices.Contains(there, rule.Alert) {
			there = append(there, rule.Alert)
		}
		annotations := rule.Annotations
		if len(annotations["summary"]) < 20 || len(annotations["description"]) < 80 || annotations["runbook_url"] != "https://here.example/alerts#"+strings.ToLower(rule.Alert) {
			t.Errorf("%s has the annotations %q", rule.Alert, annotations)
		}
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", rule.Alert, s)
		}
		for _, text := range append([]string{rule.Expr.String(), rule.Labels["cluster"], rule.Labels["name"]}, annotations["summary"], annotations["description"]) {
			if left := placeholder.FindString(text); left != "" {
				t.Errorf("%s contains %s in %q", rule.Alert, left, text)
			}
			for _, use := range variable.FindAllString(text, -1) {
				if found := label.FindStringSubmatch(use); found != nil && !strings.Contains(rule.Expr.String(), found[1]) {
					t.Errorf("%s has no label %s of %s", rule.Alert, found[1], use)
				}
			}
		}
	}
	for _, rule := range alerts(t, everything) {
		if link, there := rule.Annotations["runbook_url"]; there {
			t.Errorf("%s has the default runbook %q, which is no URL", rule.Alert, link)
		}
	}
	if !slices.Equal(there, sections) {
		t.Errorf("docs/monitoring.md has the alerts %q, the chart has %q", sections, there)
	}
}

// ruleFile writes rules in the format of Prometheus.
func ruleFile(t *testing.T, name string, rules []monitoringv1.Rule) {
	t.Helper()
	content, err := yaml.Marshal(monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{Name: "incumbent", Rules: rules}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRules runs promtool on testdata/rules.
func TestRules(t *testing.T) {
	t.Parallel()
	if testprometheus.Installed(t, "promtool") == "" {
		t.Skip("no promtool: apt-get install --no-install-recommends prometheus")
	}
	stable, remote := alerts(t, everything), alerts(t, everything+",remoteKubeconfigSecret=there")
	tests, err := filepath.Glob(filepath.Join("testdata", "rules", "*.yaml"))
	if err != nil || len(tests) < 5 {
		t.Fatalf("tests %q (%v)", tests, err)
	}
	folder := t.TempDir()
	ruleFile(t, filepath.Join(folder, "rules.yaml"), stable)
	ruleFile(t, filepath.Join(folder, "remote.rules.yaml"), remote)
	ruleFile(t, filepath.Join(folder, "leases.rules.yaml"), alerts(t, byLeases))
	// Most tests have no series of leaders.
	ruleFile(t, filepath.Join(folder, "others.rules.yaml"), slices.DeleteFunc(slices.Clone(stable), func(r monitoringv1.Rule) bool { return r.Alert == noLeader }))
	args := []string{"test", "rules"}
	for _, test := range tests {
		content, err := os.ReadFile(test)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(test)), content, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Base(test))
	}
	command := exec.CommandContext(t.Context(), "promtool", args...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("promtool test rules: %v\n%s", err, out)
	}
}
