package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const (
	// patience bounds every wait.
	patience = 2 * time.Minute
	// look is the polling interval.
	look = 100 * time.Millisecond
)

// prometheus is a running Prometheus.
type prometheus struct {
	base    string
	client  *http.Client
	process *harness.Process
	// rules is the folder of its rule files.
	rules string
}

// startPrometheus starts a Prometheus without rules that scrapes the targets of ServiceMonitors.
func startPrometheus(t *testing.T, cluster *rest.Config, monitors []monitoringv1.ServiceMonitor) *prometheus {
	t.Helper()
	program := installed(t, "prometheus")
	scrapes := []any{}
	for _, m := range monitors {
		endpoint := m.Spec.Endpoints[0]
		scrapes = append(scrapes, map[string]any{
			"job_name": m.Namespace + "/" + m.Name, "metrics_path": endpoint.Path,
			"scrape_interval": string(endpoint.Interval), "scrape_timeout": string(endpoint.Interval),
			"static_configs": discover(t, cluster, m),
		})
	}
	folder, rules := t.TempDir(), t.TempDir()
	content, err := yaml.Marshal(map[string]any{
		"global": map[string]any{"evaluation_interval": "1s"}, "rule_files": []string{rules + "/*.yaml"}, "scrape_configs": scrapes,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "prometheus.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	process := harness.Start(t, "prometheus", nil, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p := &prometheus{base: "http://" + address, client: &http.Client{}, process: process, rules: rules}
	t.Cleanup(p.client.CloseIdleConnections)
	p.await(t, "prometheus is ready", func(ctx context.Context) error {
		select {
		case <-process.Ended():
			t.Fatal("prometheus ended")
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/-/ready", nil)
		if err != nil {
			return err
		}
		answer, err := p.client.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", answer.Status)
		}
		return nil
	})
	return p
}

// await waits until a condition returns nil.
func (p *prometheus) await(t *testing.T, what string, is func(context.Context) error) {
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

// ask sends a request to the API and decodes the data.
func (p *prometheus) ask(ctx context.Context, path string, values url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/v1/"+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s: %s", path, answer.Status, answer.Error)
	}
	return nil
}

// series is a series of a response.
type series struct {
	Metric map[string]string
	// Value has a time and a number as text.
	Value [2]any
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := p.ask(ctx, "query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// is returns an error unless an expression has the value.
func (p *prometheus) is(ctx context.Context, expr, value string) error {
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
func (p *prometheus) has(ctx context.Context, use use) error {
	var all []map[string]string
	if err := p.ask(ctx, "series", url.Values{"match[]": {use.metric}}, &all); err != nil {
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
