package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// everything enables what the defaults leave out.
const everything = `
elections: {lock: lease, strategy: incumbent.dev/DefaultRevision}
autoscaling: {enabled: true}
resources: {requests: {cpu: 100m}}
caBundle: {file: "", configMap: ca}
remoteKubeconfigSecret: remote
witness: {sidecar: true}
fence: {others: [istio-system/istiod]}
`

// A chart has the same objects each time, without a cluster and with any cluster. Tools such as Argo CD render without one.
func TestRender_WithoutCluster(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, c := range []struct{ name, release, chart, values string }{
		{"defaults", "stable", "pilot", always},
		{"everything", "canary", "pilot", "image: pilot" + everything},
		{"tags", "tags", "tags", "{default: stable, tags: {prod: canary}}"},
	} {
		values := valueFiles(t, c.values)
		offline := func() string {
			t.Helper()
			text, err := runHelm(t, p.namespace, "", append([]string{"template", c.release, charts(c.chart), kubeVersion}, values...)...)
			harness.Must(t, err)
			return objectsOf(text)
		}
		want := offline()
		if want == "" || offline() != want {
			t.Errorf("%s: helm template differs from the call before: %s", c.name, difference(want, offline()))
		}
		for _, verb := range []string{"install", "upgrade"} {
			p.mustHelm(t, append([]string{verb, c.release, charts(c.chart)}, values...)...)
			if got := objectsOf(p.mustHelm(t, "get", "manifest", c.release)); got != want {
				t.Errorf("%s: helm %s differs from helm template: %s", c.name, verb, difference(want, got))
			}
			if c.chart == "pilot" { // changes what the next upgrade finds
				newCLI(t, p).run("kubectl -n " + p.namespace + " scale deployment/pilot-" + c.release + " --replicas=3")
			}
		}
	}
}

// objectsOf returns rendered objects in an order that does not depend on the command.
func objectsOf(text string) string {
	objects := strings.Split("\n"+strings.TrimSpace(text)+"\n", "\n---\n")
	slices.Sort(objects)
	return strings.TrimSpace(strings.Join(objects, "\n---\n"))
}

// No template asks the cluster, has a hook, or renders something else each time.
func TestTemplates_Pure(t *testing.T) {
	t.Parallel()
	impure := regexp.MustCompile(`\blookup\b|Capabilities|helm\.sh/hook|\b(now|rand[A-Z]\w+|gen[A-Z]\w+|uuidv4)\b|\.Release\.(IsInstall|IsUpgrade|Revision)`)
	files, err := filepath.Glob(charts("*/templates/*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d templates (%v)", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if found := impure.Find(content); found != nil || err != nil {
			t.Errorf("%s contains %s (%v)", file, found, err)
		}
	}
}

// `helm upgrade --reuse-values` works for a release whose values contain nulls. Helm then passes the nulls to the chart.
func TestUpgrade_ReusesNulls(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for chart, text := range map[string]string{"pilot": always, "tags": "tags: {prod: stable}"} {
		contents := []string{text}
		for _, path := range optional[chart] {
			if path != "tags" {
				contents = append(contents, at(path, "null"))
			}
		}
		p.mustHelm(t, append([]string{"install", chart, charts(chart)}, valueFiles(t, contents...)...)...)
		before := p.mustHelm(t, "get", "manifest", chart)
		p.mustHelm(t, "upgrade", chart, charts(chart), "--reuse-values")
		if after := p.mustHelm(t, "get", "manifest", chart); after != before {
			t.Errorf("%s: the upgrade changed the objects: %s", chart, difference(before, after))
		}
	}
}
