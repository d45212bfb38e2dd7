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
	block  = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")
	indent = "   "
)

// The test runs each command of docs/upgrade.md in order. At the end nothing remains.
func TestUpgradePage(t *testing.T) {
	whole(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	const named = "registry.example/pilot:1.0"
	var options rollout.Options
	build(t, &options)
	w := start(t, rollout.Options{Bare: true, Images: map[string]string{named: options.Pilot}})
	here := t.TempDir()
	w.must(os.Symlink(filepath.Dir(options.Charts), filepath.Join(here, "deploy")))
	blocks := block.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 8 {
		t.Fatalf("docs/upgrade.md has %d blocks of commands, want 8 or more", len(blocks))
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
	left, err := w.Leftovers(t.Context())
	w.must(err)
	if len(left) > 0 {
		t.Errorf("leftovers: %q", left)
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

// run runs a command of the page with the programs of this test.
func (w *world) run(here, command string) {
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
}
