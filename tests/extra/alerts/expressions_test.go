package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// chosen replaces the variables of Grafana.
var chosen = strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$name", ".*")

// target is one expression of the dashboard.
type target struct{ panel, expr, legend string }

// dashboard returns the expressions of the chart's dashboard.
func dashboard(t *testing.T) (all []target) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chart("pilot"), "files", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	for _, p := range read.Panels {
		if p.Title == "" || p.Description == "" && p.Type != "row" {
			t.Errorf("panel %q: title and description %q", p.Title, p.Description)
		}
		for _, q := range p.Targets {
			all = append(all, target{p.Title, chosen.Replace(q.Expr), q.LegendFormat})
		}
	}
	return all
}

// nameLabel is the label with the name of a metric.
const nameLabel = "__name__"

// use is a metric in an expression with the labels of its matchers.
type use struct {
	where, metric string
	labels        []string
}

// uses returns the metrics of an expression with the labels of their matchers.
func uses(where, expr string) (all []use, err error) {
	read, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w in %s", where, err, expr)
	}
	parser.Inspect(read, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		one := use{where: where, metric: selector.Name}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != nameLabel && (matcher.Type == labels.MatchEqual || matcher.Type == labels.MatchRegexp) {
				one.labels = append(one.labels, matcher.Name)
			}
		}
		all = append(all, one)
		return nil
	})
	return all, nil
}

// everyUse returns the metrics of all alerts and panels.
func everyUse(t *testing.T) (all []use) {
	t.Helper()
	for _, rule := range alerts(t, everything) {
		found, err := uses(rule.Alert, rule.Expr.String())
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	for _, target := range dashboard(t) {
		found, err := uses("panel "+target.panel, target.expr)
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	if len(all) < 30 {
		t.Errorf("only %d uses of metrics", len(all))
	}
	return all
}

// metricRow is a row of the table of metrics in docs/monitoring.md: name, type and labels.
var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| ([^|]*) \\|")

// exported returns the labels of the metrics of a server by name. Package bootstrap generates their table from a server.
// Prometheus adds the first two labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(monitoringPage(t), -1) {
		has := append([]string{"namespace", "pod", remoteLabel}, strings.Split(row[3], ", ")...)
		if row[2] != "histogram" {
			all[row[1]] = has
			continue
		}
		all[row[1]+"_bucket"] = append(has, "le")
		all[row[1]+"_sum"] = has
		all[row[1]+"_count"] = has
	}
	return all
}

// Each metric of an expression is exported, with the labels of its matchers.
func TestExpressions_UseExportedMetrics(t *testing.T) {
	t.Parallel() // one of them mostly waits
	metrics := exported(t)
	for _, use := range everyUse(t) {
		has, found := metrics[use.metric]
		if !found || !slices.Contains(use.labels, "namespace") {
			t.Errorf("%s uses %q with the labels %q", use.where, use.metric, use.labels)
		}
		for _, label := range use.labels {
			if !slices.Contains(has, label) {
				t.Errorf("%s uses label %s of %s, which has %q", use.where, label, use.metric, has)
			}
		}
	}
}
