package alerts

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/prometheus"
)

// server is a running Prometheus with the rules of both releases.
type server struct {
	*prometheus.Server
	rules string // the folder of its rule files
}

// startPrometheus starts a Prometheus that scrapes the Pods. It has no rules yet.
func startPrometheus(t *testing.T, p *plane) *server {
	t.Helper()
	groups := []any{}
	for _, pod := range p.node.Pods() {
		groups = append(groups, map[string]any{
			"targets": []string{net.JoinHostPort(pod.Address, "15014")}, "labels": map[string]string{"namespace": p.namespace, "pod": pod.Name},
		})
	}
	rules := t.TempDir()
	return &server{prometheus.Start(t, map[string]any{
		"global":         map[string]any{"evaluation_interval": "1s", "scrape_interval": "1s", "scrape_timeout": "1s"},
		"rule_files":     []string{rules + "/*.yaml"},
		"scrape_configs": []any{map[string]any{"job_name": "pilot", "static_configs": groups}},
	}), rules}
}

// await waits until a condition returns nil.
func (p *server) await(t *testing.T, what string, is func(context.Context) error) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v", what, last)
		}
	}()
	harness.Until(t, what, func() bool {
		last = is(t.Context())
		return last == nil
	})
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
