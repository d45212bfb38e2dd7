package alerts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	testprometheus "incumbent.dev/incumbent/internal/testutil/prometheus"
)

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
	for _, target := range testprometheus.Dashboard(t, root) {
		found, err := uses("panel "+target.Panel, target.Expr)
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
// Prometheus adds the first two labels. Metrics of a remote cluster have the third.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(monitoringPage(t), -1) {
		has := append([]string{"namespace", "pod", "cluster"}, strings.Split(row[3], ", ")...)
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
	t.Parallel()
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
