package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// paths are all values of a chart, those that have others below them as well.
func paths(t *testing.T, chart string) (all map[string]any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(charts(chart), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	all = map[string]any{}
	var walk func(prefix string, values map[string]any)
	walk = func(prefix string, values map[string]any) {
		for key, value := range values {
			all[prefix+key] = value
			if below, ok := value.(map[string]any); ok {
				walk(prefix+key+".", below)
			}
		}
	}
	walk("", values)
	return all
}

// A value that is null, or of a type that it cannot have, is taken for nothing or named by the schema: none fails inside a template.
func TestNoValueFailsInsideATemplate(t *testing.T) {
	// Of these, null says nothing, as what is empty does.
	may := map[string][]string{
		"pilot": {
			"revision", "replicas", "caBundle.configMap", "elections.member", "elections.strategy", "elections.coordinator", "elections.leaseDuration", "elections.renewDeadline", "elections.retryPeriod", "fence.others", "fence.set", "fence.coordinated",
			"excludedNamespaces", "remoteKubeconfigSecret", "kube.qps", "kube.burst", "log.level", "args", "env", "resources", "imagePullPolicy", "pod",
			"monitoring.rules.labels", "monitoring.serviceMonitor.labels", "monitoring.dashboard.labels", "monitoring.dashboard.labels.grafana_dashboard",
		},
		"tags": {"default", "tags", "force"},
	}
	// Of these it says what is missing.
	missing := map[string]string{"image": "image is empty: name", "caBundle.file": "caBundle is empty: name"}
	folder := t.TempDir()
	base := map[string]string{"pilot": filepath.Join(folder, "pilot.yaml"), "tags": filepath.Join(folder, "tags.yaml")}
	for chart, text := range map[string]string{"pilot": "image: pilot\ncaBundle: {file: /ca.pem}", "tags": "tags: {prod: stable}"} {
		if err := os.WriteFile(base[chart], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, 4)
	for chart, taken := range may {
		for path, value := range paths(t, chart) {
			wrong := "{a: {b: c}}"
			if _, ok := value.(map[string]any); ok {
				wrong = "text"
			}
			for what, text := range map[string]string{"null": "null", "wrong": wrong} {
				file := filepath.Join(folder, fmt.Sprintf("%s-%s-%s.yaml", chart, path, what))
				content := strings.ReplaceAll(path, ".", ": {") + ": " + text + strings.Repeat("}", strings.Count(path, "."))
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{"template", "stable", charts(chart), "--namespace", "istio-system", "--values", base[chart], "--values", file}
				running.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					a := helm(t, args...)
					switch {
					case what == "null" && slices.Contains(taken, path):
						if a.err != nil {
							t.Errorf("%s of %s, where null says nothing, is answered %s", content, chart, a.complaints)
						}
					case a.err != nil && what == "null" && missing[path] != "" && strings.Contains(a.complaints, missing[path]):
					case a.err == nil:
						t.Errorf("%s of %s is taken", content, chart)
					case !strings.Contains(a.complaints, "values don't meet the specifications of the schema") ||
						!strings.Contains(a.complaints, "'/"+strings.ReplaceAll(path, ".", "/")) && !strings.Contains(a.complaints, "'"+path[strings.LastIndex(path, ".")+1:]+"'"):
						t.Errorf("%s of %s is answered without the value's name by the schema: %s", content, chart, a.complaints)
					}
				})
			}
		}
	}
}
