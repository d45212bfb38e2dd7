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

// What docs/upgrade.md tells operators to type is typed, block by block, and its end leaves no traces.
func TestThePageIsTrue(t *testing.T) {
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
		t.Fatalf("the page has %d blocks of commands", len(blocks))
	}
	for _, found := range blocks {
		if found[1] == "yaml" {
			w.must(os.WriteFile(filepath.Join(here, "values.yaml"), []byte(w.played(found[2])), 0o600))
			continue
		}
		for _, command := range strings.Split(strings.TrimSpace(found[2]), "\n") {
			w.types(here, command)
		}
	}
	left, err := w.Traces(t.Context())
	w.must(err)
	if len(left) > 0 {
		t.Errorf("in the end there is still %q", left)
	}
}

// played are the values as pods that are processes can have them: these have no volumes, and share a network.
func (w *world) played(values string) string {
	w.t.Helper()
	const mounted = "configMap: istio-ca"
	if !strings.Contains(values, mounted) {
		w.t.Fatalf("the page's values have no %s:\n%s", mounted, values)
	}
	return strings.Replace(values, mounted, "file: "+w.BundleFile(), 1) + "\naddress: $(POD_IP):15014\n"
}

// types runs a command of the page, with the programs of this test in the place of the operator's.
func (w *world) types(here, command string) {
	w.t.Helper()
	shell := exec.CommandContext(w.t.Context(), "bash", "-ec", command)
	shell.Dir = here
	shell.Env = []string{
		"PATH=" + built + ":" + filepath.Dir(w.Cluster.Kubectl()) + ":" + os.Getenv("PATH"), "HOME=" + here, "KUBECONFIG=" + w.Cluster.Kubeconfig(),
	}
	said, err := shell.CombinedOutput()
	w.t.Logf("$ %s\n%s%s", command, indent, strings.ReplaceAll(strings.TrimSpace(string(said)), "\n", "\n"+indent))
	if err != nil {
		w.t.Fatalf("%s: %v", command, err)
	}
}
