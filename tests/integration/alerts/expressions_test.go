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

// chosen is what Grafana puts in for its variables.
var chosen = strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$name", ".*")

// target is one expression of the dashboard.
type target struct{ panel, expr, legend string }

// dashboard are the expressions of the chart's dashboard.
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

// nameLabel is the one in which the parser has a metric's name.
const nameLabel = "__name__"

// use is what an expression wants of a metric: that it is there, with labels.
type use struct {
	where, metric string
	labels        []string
}

// uses are those of an expression. The labels by which it groups or joins are wanted of each metric in it that the grouping is over.
func uses(where, expr string) (all []use, err error) {
	read, err := parser.ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w in %s", where, err, expr)
	}
	parser.Inspect(read, func(node parser.Node, path []parser.Node) error {
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
		one.labels = append(one.labels, wanted(path, node)...)
		all = append(all, one)
		return nil
	})
	return all, nil
}

// wanted are the labels that what is above a metric wants of it: those by which it is grouped or joined. What a join adds to
// them is the other side's.
func wanted(path []parser.Node, node parser.Node) (all []string) {
	var added []string
	for i, below := len(path)-1, node; i >= 0; i, below = i-1, path[i] {
		switch e := path[i].(type) {
		case *parser.AggregateExpr:
			for _, label := range e.Grouping {
				if !e.Without && !slices.Contains(added, label) {
					all = append(all, label)
				}
			}
		case *parser.BinaryExpr:
			m := e.VectorMatching
			if m == nil || !m.On {
				continue
			}
			all = append(all, m.MatchingLabels...)
			if below == e.RHS { // whose other labels end here
				if m.Card == parser.CardManyToOne {
					all = append(all, m.Include...)
				}
				return all
			}
			added = append(added, m.Include...)
		}
	}
	return all
}

// everyUse is what alerts and dashboard want of metrics.
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

// Each expression parses, and is about what is incumbent's.
func TestEachExpressionParses(t *testing.T) {
	t.Parallel() // one of them mostly waits
	for _, use := range everyUse(t) {
		if use.metric != "leader_election_master_status" && !strings.HasPrefix(use.metric, "incumbent_") || !slices.Contains(use.labels, "namespace") {
			t.Errorf("%s asks for %q with the labels %q", use.where, use.metric, use.labels)
		}
	}
}

// What an expression wants is found out, or the check of it could find nothing.
func TestUsesOfMetrics(t *testing.T) {
	t.Parallel() // one of them mostly waits
	got, err := uses("x", `sum by (a, e) (rate(m{b="1", c!="2"}[5m]) * on (d) group_left (e) (n{f=~"."} >= bool 0))`)
	if err != nil || len(got) != 2 || fmt.Sprint(got[0].labels) != "[b d a]" || fmt.Sprint(got[1].labels) != "[f d e]" || got[0].metric != "m" || got[1].metric != "n" {
		t.Errorf("%+v (%v)", got, err)
	}
	if _, err := uses("x", "sum by (a (m)"); err == nil {
		t.Error("what is no expression is taken")
	}
}
