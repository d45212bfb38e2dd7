package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/features"
)

// setting is a row of files/istiod.yaml.
type setting struct{ Setting, Here, Why, Accepts, Note string }

// row returns the row in docs/istio.md.
func (s setting) row() string {
	here := "same"
	if s.Here != "" {
		here = "`" + s.Here + "`"
	} else if s.Why != "" {
		here = "not supported: " + s.Why
	}
	return "| `" + s.Setting + "` | " + here + " | " + s.Note + " |\n"
}

// The table in docs/istio.md has the settings that the chart checks, and each row is true.
func TestIstiodSettings(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(charts("pilot"), "files", "istiod.yaml"))
	harness.Must(t, err)
	var all []setting
	harness.Must(t, yaml.UnmarshalStrict(content, &all))
	table := "\n| setting of istiod's chart | here | |\n| --- | --- | --- |\n"
	for _, s := range all {
		table += s.row()
	}
	page := filepath.Join("..", "..", "docs", "istio.md")
	text, err := os.ReadFile(page)
	harness.Must(t, err)
	section := regexp.MustCompile(`(?s)(<!-- begin of the table of settings -->\n).*(\n<!-- end of the table of settings -->)`)
	if !section.Match(text) {
		t.Fatalf("%s has no table of settings", page)
	}
	golden(t, page, section.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}")))
	source := istioSource(t)
	for _, s := range all {
		t.Run(s.Setting, func(t *testing.T) {
			t.Parallel()
			s.check(t)
			if name := s.Setting[strings.LastIndex(s.Setting, ".")+1:]; source != "" && !strings.Contains(strings.ToLower(source), strings.ToLower(name)) {
				t.Errorf("Istio has no setting %s", name)
			}
		})
	}
}

// check renders the chart with the setting.
func (s setting) check(t *testing.T) {
	t.Helper()
	render := func(value string) error {
		_, err := template(t, "stable", "pilot", valueFiles(t, always, at(s.Setting, value))...)
		return err
	}
	path, isEnv := strings.CutPrefix(s.Setting, "env.")
	isVariable := slices.ContainsFunc(features.List(), func(f features.Flag) bool { return f.Name == path })
	switch {
	case s.Here != "":
		if _, ok := paths(t, "pilot")[s.Here]; !ok && !strings.HasPrefix(s.Here, "env.") {
			t.Errorf("the chart has no value %s", s.Here)
		}
		if isEnv && !isVariable {
			t.Errorf("the server has no variable %s", path)
		}
		wantError(t, render("other"), s.Setting, "set "+s.Here+" instead")
	case s.Why != "":
		if isEnv && isVariable {
			t.Errorf("the server has the variable %s", path)
		}
		wantError(t, render("other"), s.Setting, "not supported", s.Why)
	case isEnv:
		if !isVariable {
			t.Errorf("the server has no variable %s", path)
		}
		if err := render("other"); err != nil {
			t.Error(err)
		}
	case !s.isRead(t):
		t.Error("the chart does not read it")
	}
	if s.Accepts != "" {
		if err := render("'" + strings.ReplaceAll(s.Accepts, "{{ .Release.Namespace }}", "istio-system") + "'"); err != nil && !strings.Contains(err.Error(), "but the chart sets this variable") {
			t.Error(err)
		}
	}
}

// isRead reports whether the schema of the chart defines the value.
func (s setting) isRead(t *testing.T) bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(charts("pilot"), "values.schema.json"))
	harness.Must(t, err)
	var at any
	harness.Must(t, json.Unmarshal(content, &at))
	for key := range strings.SplitSeq(s.Setting, ".") {
		schema, _ := at.(map[string]any)
		properties, _ := schema["properties"].(map[string]any)
		at = properties[key]
	}
	return at != nil
}

// istioSource returns the text of the settings of Istio, or "" if its module is not on this machine. tests/peers requires it.
func istioSource(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/istio")
	list.Dir = filepath.Join("..", "..", "tests", "peers")
	list.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	dir, err := list.Output()
	if folder := strings.TrimSpace(string(dir)); err == nil && folder != "" {
		var text strings.Builder
		for _, pattern := range []string{"pilot/pkg/features/*.go", "pilot/pkg/config/kube/ingress/*.go", "pilot/pkg/bootstrap/options.go", "pkg/config/mesh/mesh.go", "pkg/kube/namespace/filter.go", "manifests/charts/istio-control/istio-discovery/values.yaml", "manifests/charts/istio-control/istio-discovery/templates/*.yaml"} {
			files, err := filepath.Glob(filepath.Join(folder, pattern))
			harness.Must(t, err)
			for _, file := range files {
				content, err := os.ReadFile(file)
				harness.Must(t, err)
				text.Write(content)
			}
		}
		return text.String()
	}
	return ""
}

// A values file of istiod's chart is accepted if its settings have the same effect here, or concern istiod only.
func TestIstiodSettings_Accepted(t *testing.T) {
	t.Parallel()
	_, err := template(t, "stable", "pilot", valueFiles(t, always, `
global: {hub: docker.io/istio, proxy: {logLevel: debug}, istioNamespace: istio-system}
meshConfig: {accessLogFile: /dev/stdout, ingressService: front, defaultConfig: {holdApplicationUntilProxyStarts: true}}
env: {PILOT_ENABLE_GATEWAY_API_STATUS_UNKNOWN: x, PILOT_ENABLE_XDS_CACHE: false, PILOT_ENABLE_AMBIENT: false}
traceSampling: 10
taint: {enabled: true}
`)...)
	if err != nil {
		t.Error(err)
	}
}
