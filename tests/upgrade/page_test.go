package upgrade

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

var (
	block = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")
	// inline is a complete command within a sentence.
	inline = regexp.MustCompile("`((?:electionctl|kubectl) [^`]* -n istio-system[^`]*)`")
	// printed is a command that electionctl prints.
	printed = regexp.MustCompile("helm upgrade .*")
	indent  = "   "
)

// changes are the changes by kubectl and electionctl before the page changes the default revision.
var changes = []string{
	"kubectl -n istio-system scale deployment pilot-stable --replicas=2",
	"kubectl label --overwrite mutatingwebhookconfiguration istio-revision-tag-default istio.io/rev=canary",
	"electionctl -n istio-system default set --yes stable",
}

// The test runs each command of docs/monitoring.md, and each command of docs/upgrade.md in order, after changes by kubectl and
// electionctl. At the end nothing remains.
func TestUpgradePage(t *testing.T) {
	whole(t)
	const named = "registry.example/pilot:0.1.0"
	var options rollout.Options
	build(t, &options)
	w := start(t, rollout.Options{Bare: true, Images: map[string]string{named: options.Pilot}})
	harness.Must(w.t, w.Cluster.LoadDefinitions(t.Context(), filepath.Join("testdata", "definitions")))
	harness.Must(w.t, options.BuildElectionctl(t.Context(), root, built))
	install, upgrade, found := strings.Cut(w.page("upgrade.md"), "## Change the default revision")
	if !found {
		t.Fatal("docs/upgrade.md does not change the default revision")
	}
	w.run("helm package deploy/charts/pilot deploy/charts/tags --destination " + built)
	w.runBlocks(install)
	w.runMonitoring()
	for _, command := range changes {
		w.run(command)
	}
	next := printed.FindString(w.run("electionctl -n istio-system default set --yes canary"))
	if next == "" {
		t.Fatal("electionctl default set prints no helm upgrade")
	}
	w.run(next)
	w.run("electionctl -n istio-system default set --yes stable")
	w.runBlocks(upgrade)
	w.wantNoLeftovers()
}

// page returns a page of the documentation.
func (w *world) page(name string) string {
	w.t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", name))
	harness.Must(w.t, err)
	return string(page)
}

// runMonitoring runs the blocks of docs/monitoring.md, and the complete commands in its sentences.
func (w *world) runMonitoring() {
	w.t.Helper()
	page := w.page("monitoring.md")
	w.runBlocks(page)
	commands := inline.FindAllStringSubmatch(page, -1)
	if len(commands) < 4 {
		w.t.Fatalf("docs/monitoring.md has %d complete commands in its sentences, want 4 or more", len(commands))
	}
	for _, command := range commands {
		w.run(command[1])
	}
}

// runBlocks runs the commands of a part of a page, and writes its values to a file.
func (w *world) runBlocks(part string) {
	w.t.Helper()
	blocks := block.FindAllStringSubmatch(part, -1)
	if fences := strings.Count(part, "```"); len(blocks) == 0 || fences != 2*len(blocks) {
		w.t.Fatalf("%d blocks of commands or values between %d marks, in\n%s", len(blocks), fences, part)
	}
	for _, found := range blocks {
		if found[1] == "yaml" {
			harness.Must(w.t, os.WriteFile(filepath.Join(built, "values.yaml"), []byte(w.adapted(found[2])), 0o600))
			continue
		}
		lines := strings.ReplaceAll(strings.TrimSpace(found[2]), "\\\n", "")
		for _, command := range strings.Split(lines, "\n") {
			w.run(command)
		}
	}
}

// adapted changes the values for Pods that run as processes: they have no volumes and share the network.
func (w *world) adapted(values string) string {
	w.t.Helper()
	const mounted = "configMap: istio-ca"
	if !strings.Contains(values, mounted) {
		w.t.Fatalf("the values of the page have no %s:\n%s", mounted, values)
	}
	return strings.Replace(values, mounted, "file: "+w.BundleFile(), 1) + "\naddress: $(POD_IP):15014\n"
}

// run runs a command with the programs of this test and returns its output.
func (w *world) run(command string) string {
	w.t.Helper()
	command = strings.ReplaceAll(command, " dist/", " "+built+"/") // the charts of a release
	output, err := w.Shell(w.t.Context(), built, "set -o pipefail; "+command).CombinedOutput()
	w.t.Logf("$ %s\n%s%s", command, indent, strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", "\n"+indent))
	if err != nil {
		w.t.Fatalf("%s: %v", command, err)
	}
	return string(output)
}
