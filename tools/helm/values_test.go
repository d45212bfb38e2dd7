package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// paths returns all values of a chart, including maps.
func paths(t *testing.T, chart string) (all map[string]any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(charts(chart), "values.yaml"))
	harness.Must(t, err)
	values := map[string]any{}
	harness.Must(t, yaml.Unmarshal(content, &values))
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

// optional are the values for which null means the default.
var optional = map[string][]string{
	"pilot": {
		"revision", "replicas", "caBundle.configMap", "elections.member", "elections.strategy", "elections.coordinator", "elections.leaseDuration", "elections.renewDeadline", "elections.retryPeriod", "fence.others", "fence.set", "fence.coordinated",
		"excludedNamespaces", "discoverySelectors", "ingress.mode", "ingress.class", "ingress.service", "ingress.selector", "meshConfig", "gatewayAPI.overlayFields", "gatewayAPI.objects", "remoteKubeconfigSecret", "kube.qps", "kube.burst", "log.level", "args", "env", "resources", "imagePullPolicy", "pod",
		"monitoring.rules.labels", "monitoring.serviceMonitor.labels", "monitoring.dashboard.labels", "monitoring.dashboard.labels.grafana_dashboard",
	},
	"tags": {"default", "tags"},
}

// at returns values with one value at a path.
func at(path, value string) string {
	return strings.ReplaceAll(path, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(path, "."))
}

// A value that is null or of a wrong type is accepted, or rejected by the schema with its name. It never fails in a template.
func TestValues_NullAndWrongType(t *testing.T) {
	t.Parallel()
	// For these values the template reports that they are missing.
	missing := []string{"image", "caBundle.file"}
	base := map[string]string{"pilot": "image: pilot\ncaBundle: {file: /ca.pem}", "tags": "tags: {prod: stable}"}
	for chart, optional := range optional {
		var null, required, leaves, maps []string
		for path, value := range paths(t, chart) {
			_, isMap := value.(map[string]any)
			isMap = isMap && !slices.Contains(optional, path)
			switch {
			case isMap && !strings.Contains(path, "."):
				maps = append(maps, path)
			case isMap:
			case slices.Contains(optional, path):
				null = append(null, path)
				leaves = append(leaves, path)
			default:
				leaves = append(leaves, path)
				if !slices.Contains(missing, path) {
					required = append(required, path)
				}
			}
		}
		for name, c := range map[string]struct {
			paths    []string
			value    string
			accepted bool
		}{
			"optional null":  {null, "null", true},
			"required null":  {required, "null", false},
			"wrong type":     {withoutChildren(leaves), "[{a: {b: c}}]", false},
			"text for a map": {maps, "text", false},
		} {
			if len(c.paths) == 0 {
				continue
			}
			t.Run(chart+" "+name, func(t *testing.T) {
				t.Parallel()
				contents := []string{base[chart]}
				for _, path := range c.paths {
					contents = append(contents, at(path, c.value))
				}
				_, err := template(t, "stable", chart, valueFiles(t, contents...)...)
				if c.accepted {
					if err != nil {
						t.Error(err)
					}
					return
				}
				wantError(t, err, "values don't meet the specifications of the schema")
				for _, path := range c.paths {
					if text := fmt.Sprint(err); !strings.Contains(text, "'/"+strings.ReplaceAll(path, ".", "/")) && !strings.Contains(text, "'"+path[strings.LastIndex(path, ".")+1:]+"'") {
						t.Errorf("%s is not named in\n%s", path, text)
					}
				}
			})
		}
	}
}

// withoutChildren removes the paths below another path.
func withoutChildren(paths []string) (kept []string) {
	for _, path := range paths {
		if !slices.ContainsFunc(paths, func(other string) bool { return strings.HasPrefix(path, other+".") }) {
			kept = append(kept, path)
		}
	}
	return kept
}

// valueFiles returns the arguments that pass each text as a file of values.
func valueFiles(t *testing.T, texts ...string) (args []string) {
	t.Helper()
	folder := t.TempDir()
	for i, text := range texts {
		file := filepath.Join(folder, fmt.Sprintf("%03d.yaml", i))
		harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
		args = append(args, "--values", file)
	}
	return args
}
