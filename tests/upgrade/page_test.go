package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

var (
	block = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")
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

// The test runs each command of docs/upgrade.md in order, after changes by kubectl and electionctl. At the end nothing remains.
func TestUpgradePage(t *testing.T) {
	whole(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	const named = "registry.example/pilot:1.0"
	var options rollout.Options
	build(t, &options)
	buildElectionctl(t)
	w := start(t, rollout.Options{Bare: true, Images: map[string]string{named: options.Pilot}})
	here := t.TempDir()
	w.must(os.Symlink(filepath.Dir(options.Charts), filepath.Join(here, "deploy")))
	install, upgrade, found := strings.Cut(string(page), "## Change the default revision")
	if !found {
		t.Fatal("docs/upgrade.md does not change the default revision")
	}
	w.runBlocks(here, install)
	for _, command := range w.monitoring() {
		w.run(here, command)
	}
	for _, command := range changes {
		w.run(here, command)
	}
	next := printed.FindString(w.run(here, "electionctl -n istio-system default set --yes canary"))
	if next == "" {
		t.Fatal("electionctl default set prints no helm upgrade")
	}
	w.run(here, next)
	w.run(here, "electionctl -n istio-system default set --yes stable")
	w.runBlocks(here, upgrade)
	left, err := w.Leftovers(t.Context())
	w.must(err)
	if len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

// buildElectionctl builds electionctl next to the other programs.
func buildElectionctl(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", built, ".")
	command.Dir, command.Env = filepath.Join(root, "electionctl"), append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build electionctl: %v\n%s", err, said)
	}
}

// monitoring returns the commands of docs/monitoring.md that show the state.
func (w *world) monitoring() []string {
	w.t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "monitoring.md"))
	w.must(err)
	_, commands, _ := strings.Cut(string(page), "```\n")
	commands, _, found := strings.Cut(commands, "```")
	if !found || !strings.Contains(commands, "electionctl explain ELECTION") {
		w.t.Fatal("docs/monitoring.md does not begin with commands of electionctl")
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(commands, "ELECTION", "istio-leader")), "\n")
}

// runBlocks runs the commands of a part of the page, and writes its values to a file.
func (w *world) runBlocks(here, part string) {
	w.t.Helper()
	blocks := block.FindAllStringSubmatch(part, -1)
	if len(blocks) < 4 {
		w.t.Fatalf("%d blocks of commands, want 4 or more, in\n%s", len(blocks), part)
	}
	for _, found := range blocks {
		if found[1] == "yaml" {
			w.must(os.WriteFile(filepath.Join(here, "values.yaml"), []byte(w.adapted(found[2])), 0o600))
			continue
		}
		for _, command := range strings.Split(strings.TrimSpace(found[2]), "\n") {
			w.run(here, command)
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
func (w *world) run(here, command string) string {
	w.t.Helper()
	shell := exec.CommandContext(w.t.Context(), "bash", "-ec", command)
	shell.Dir = here
	shell.Env = []string{
		"PATH=" + built + ":" + filepath.Dir(w.Cluster.Kubectl()) + ":" + os.Getenv("PATH"), "HOME=" + here, "KUBECONFIG=" + w.Cluster.Kubeconfig(),
	}
	output, err := shell.CombinedOutput()
	w.t.Logf("$ %s\n%s%s", command, indent, strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", "\n"+indent))
	if err != nil {
		w.t.Fatalf("%s: %v", command, err)
	}
	return string(output)
}
