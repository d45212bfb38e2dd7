package prometheus

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Target is one expression of the dashboard of the chart.
type Target struct{ Panel, Expr, Legend string }

// chosen replaces the variables of Grafana.
var chosen = strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$name", ".*")

// Dashboard returns the expressions of the dashboard of the chart. root is the root of the repository.
func Dashboard(t testing.TB, root string) (all []Target) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "deploy", "charts", "pilot", "files", "dashboard.json"))
	harness.Must(t, err)
	var read struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	harness.Must(t, json.Unmarshal(content, &read))
	for _, p := range read.Panels {
		if p.Title == "" || p.Description == "" && p.Type != "row" {
			t.Errorf("panel %q: title and description %q", p.Title, p.Description)
		}
		for _, q := range p.Targets {
			all = append(all, Target{p.Title, chosen.Replace(q.Expr), q.LegendFormat})
		}
	}
	return all
}
