package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	for _, p := range read.Panels {
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

func TestExpressionsParse(t *testing.T) {
	t.Parallel() // one of them mostly waits
	for _, use := range everyUse(t) {
		if use.metric != "leader_election_master_status" && !strings.HasPrefix(use.metric, "incumbent_") || !slices.Contains(use.labels, "namespace") {
			t.Errorf("%s uses %q with the labels %q", use.where, use.metric, use.labels)
		}
	}
}
