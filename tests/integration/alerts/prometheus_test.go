package alerts

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"incumbent.dev/incumbent/internal/testutil/prometheus"
)

const (
	// patience bounds every wait.
	patience = 2 * time.Minute
	// look is the polling interval.
	look = 100 * time.Millisecond
)

// server is a running Prometheus.
type server struct {
	*prometheus.Server
	// rules is the folder of its rule files.
	rules string
}

// startPrometheus starts a Prometheus without rules that scrapes the targets of ServiceMonitors.
func startPrometheus(t *testing.T, p *plane) *server {
	t.Helper()
	scrapes := []any{}
	for _, m := range list[monitoringv1.ServiceMonitor](t, p, "servicemonitors") {
		endpoint := m.Spec.Endpoints[0]
		scrapes = append(scrapes, map[string]any{
			"job_name": m.Namespace + "/" + m.Name, "metrics_path": endpoint.Path,
			"scrape_interval": string(endpoint.Interval), "scrape_timeout": string(endpoint.Interval),
			"static_configs": discover(t, p.Client(t).Kube(), m),
		})
	}
	rules := t.TempDir()
	return &server{prometheus.Start(t, map[string]any{
		"global": map[string]any{"evaluation_interval": "1s"}, "rule_files": []string{rules + "/*.yaml"}, "scrape_configs": scrapes,
	}), rules}
}

// await waits until a condition returns nil.
func (p *server) await(t *testing.T, what string, is func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for last := error(nil); ; {
		err := is(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("timeout after %v: %s: %v", patience, what, last)
		case <-ticker.C:
		}
	}
}

// series is a series of a response.
type series struct {
	Metric map[string]string
	// Value has a time and a number as text.
	Value [2]any
}

// query evaluates an expression now.
func (p *server) query(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := p.Get(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// is returns an error unless an expression has the value.
func (p *server) is(ctx context.Context, expr, value string) error {
	got, err := p.query(ctx, expr)
	if err != nil {
		return err
	}
	if len(got) != 1 || got[0].Value[1] != value {
		return fmt.Errorf("%s is %v, want %s", expr, got, value)
	}
	return nil
}

// has returns an error unless a series of the metric has all labels.
func (p *server) has(ctx context.Context, use use) error {
	var all []map[string]string
	if err := p.Get(ctx, "series", url.Values{"match[]": {use.metric}}, &all); err != nil {
		return err
	}
	var last error = fmt.Errorf("%s: no metric %s", use.where, use.metric)
	for _, labels := range all {
		missing := ""
		for _, label := range use.labels {
			if _, there := labels[label]; !there && label != remoteLabel {
				missing = label
			}
		}
		if missing == "" {
			return nil
		}
		last = fmt.Errorf("%s: %s has no label %s but %v", use.where, use.metric, missing, labels)
	}
	return last
}
