package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/harness"
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
			checkImage(t, c, name)
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

// istioIngress is the value for the gateway of Istio's installation guide.
const istioIngress = "istio-ingress/istio-ingress"

// The component istio-ingress makes the same changes as the value of the chart. The Role in the namespace of the server keeps its
// permissions.
func TestKustomize_IngressElsewhere(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	const header = "# Written by `make charts` from deploy/charts.\n"
	elsewhere := regexp.MustCompile(`(?m)^  namespace: istio-ingress$`)
	for _, revision := range []string{"stable", "canary"} {
		text, roles := mustTemplate(t, revision, "pilot", "--set", "image=pilot,caBundle.configMap=incumbent-ca,ingress.service="+istioIngress), header
		for document := range strings.SplitSeq(text, "\n---\n") {
			if elsewhere.MatchString(document) {
				roles += "---\n" + strings.TrimRight(document, "\n") + "\n"
			}
		}
		folder := filepath.Join("..", "..", "deploy", "kustomize", revision, "istio-ingress")
		golden(t, filepath.Join(folder, "roles.yaml"), []byte(roles))
		golden(t, filepath.Join(folder, "kustomization.yaml"), []byte(header+`apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [roles.yaml]
patches:
- target: {kind: Deployment}
  patch: '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--ingress-service=`+istioIngress+`"}]'
`))
		own := "Role istio-system/pilot-" + revision
		got, want := byKey(t, objects(parse(t, overlay(t, c, "resources: ["+revision+"]\ncomponents: ["+revision+"/istio-ingress]\n")))), byKey(t, objects(parse(t, text)))
		for key := range want {
			if got[key] != want[key] && key != own {
				t.Errorf("%s differs (first the chart)\n%s", key, difference(want[key], got[key]))
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d objects, want %d", len(got), len(want))
		}
	}
}

// objects returns the objects as their interface.
func objects(all []*unstructured.Unstructured) (same []runtime.Object) {
	for _, o := range all {
		same = append(same, o)
	}
	return same
}

// overlay returns the output of kubectl for an overlay of folders in deploy/kustomize.
func overlay(t *testing.T, c *cluster.Cluster, content string) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	harness.Must(t, err)
	base, err := filepath.Abs(filepath.Join("..", "..", "deploy", "kustomize"))
	harness.Must(t, err)
	if base, err = filepath.Rel(folder, base); err != nil {
		t.Fatal(err)
	}
	content = regexp.MustCompile(`\[(stable|canary)`).ReplaceAllString(content, "["+base+"/$1")
	harness.Must(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600))
	out, err := exec.CommandContext(t.Context(), c.Kubectl(), "kustomize", folder).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize with %s: %v\n%s", content, err, out[:min(len(out), 1000)])
	}
	return string(out)
}

// checkImage sets the image as docs/upgrade.md describes.
func checkImage(t *testing.T, c *cluster.Cluster, revision string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "upgrade.md"))
	harness.Must(t, err)
	images := regexp.MustCompile("`(images: .*)`").FindSubmatch(page)
	if images == nil {
		t.Fatal("docs/upgrade.md describes no images")
	}
	if out := overlay(t, c, fmt.Sprintf("resources: [%s]\n%s\n", revision, images[1])); !strings.Contains(out, "image: registry.example/pilot:0.1.0\n") {
		t.Errorf("kubectl kustomize with %s: %s", images[1], out[:min(len(out), 1000)])
	}
}
