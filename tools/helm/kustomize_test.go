package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// deploy/kustomize contains the rendered charts, for installations without Helm.
func TestKustomize(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	for name, chart := range map[string][2]string{
		"stable": {"pilot", "image=pilot,caBundle.configMap=incumbent-ca"},
		"canary": {"pilot", "image=pilot,caBundle.configMap=incumbent-ca"},
		"tags":   {"tags", "default=stable"},
	} {
		folder := filepath.Join("..", "..", "deploy", "kustomize", name)
		text := mustTemplate(t, name, chart[0], "--set", chart[1])
		golden(t, filepath.Join(folder, "rendered.yaml"), []byte("# Written by `make charts` from deploy/charts. Do not edit.\n"+text))
		golden(t, filepath.Join(folder, "kustomization.yaml"), []byte("# Written by `make charts` from deploy/charts.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [rendered.yaml]\n"))
		if name != "tags" {
			checkImage(t, c, folder)
		}
		out, err := exec.CommandContext(t.Context(), c.Kubectl(), "kustomize", folder).Output()
		if err != nil {
			t.Fatalf("kubectl kustomize %s: %v", folder, err)
		}
		if got, want := len(parse(t, string(out))), len(parse(t, text)); got != want || want == 0 || !strings.Contains(string(out), "istio.io/rev") {
			t.Errorf("kubectl kustomize %s has %d objects, the chart %d", folder, got, want)
		}
	}
}

// checkImage sets the image as docs/upgrade.md describes.
func checkImage(t *testing.T, c *cluster.Cluster, folder string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile("`(images: .*)`").FindSubmatch(page)
	if images == nil {
		t.Fatal("docs/upgrade.md describes no images")
	}
	overlay := t.TempDir()
	base, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(overlay, base); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), fmt.Appendf(nil, "resources: [%s]\n%s\n", base, images[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), c.Kubectl(), "kustomize", overlay).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "image: registry.example/pilot:0.1.0\n") {
		t.Errorf("kubectl kustomize with %s: %v\n%s", images[1], err, out[:min(len(out), 1000)])
	}
}
