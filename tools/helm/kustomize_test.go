package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/tests/cluster"
)

// deploy/kustomize contains the rendered charts, for installations without Helm.
func TestKustomize(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	for name, args := range map[string][]string{
		"stable": {"template", "stable", charts("pilot"), "--set", "image=pilot,caBundle.configMap=incumbent-ca"},
		"canary": {"template", "canary", charts("pilot"), "--set", "image=pilot,caBundle.configMap=incumbent-ca"},
		"tags":   {"template", "tags", charts("tags"), "--set", "default=stable"},
	} {
		folder := filepath.Join("..", "..", "deploy", "kustomize", name)
		text := mustHelm(t, append(args, "--namespace", "istio-system")...)
		golden(t, filepath.Join(folder, "rendered.yaml"), []byte("# Written by `make charts` from deploy/charts. Do not edit.\n"+text))
		golden(t, filepath.Join(folder, "kustomization.yaml"), []byte("# Written by `make charts` from deploy/charts.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [rendered.yaml]\n"))
		out, err := exec.CommandContext(t.Context(), c.Kubectl(), "kustomize", folder).Output()
		if err != nil {
			t.Fatalf("kubectl kustomize %s: %v", folder, err)
		}
		if got, want := len(parse(t, string(out))), len(parse(t, text)); got != want || want == 0 || !strings.Contains(string(out), "istio.io/rev") {
			t.Errorf("kubectl kustomize %s has %d objects, the chart %d", folder, got, want)
		}
	}
}
