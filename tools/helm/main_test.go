package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/helm"
	"incumbent.dev/incumbent/tests/cluster"
)

var rewrite = flag.Bool("rewrite", false, "write the rendered files to deploy")

// asHelm makes the test program run as helm, so that no other program has to be built.
const asHelm = "BE_HELM"

// environment is the environment of child processes. By default, helm waits after 100 requests; a fence needs more.
var environment = []string{asHelm + "=1", "HELM_QPS=1000", "HELM_BURST_LIMIT=1000"}

func TestMain(m *testing.M) {
	if os.Getenv(asHelm) != "" {
		os.Exit(run())
	}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	cluster.Main(m, cluster.Options{})
}

// charts returns the folder of a chart.
func charts(name string) string { return filepath.Join("..", "..", "deploy", "charts", name) }

// runHelm runs helm. kubeconfig may be empty.
func runHelm(t testing.TB, namespace, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	harness.Must(t, err)
	program := helm.Helm{Program: self, Namespace: namespace, Kubeconfig: kubeconfig, Home: t.TempDir()}
	return program.Run(context.WithoutCancel(t.Context()), args...) // cleanup functions call it, too
}

// kubeVersion is an argument of helm template. Without a cluster, helm in a test program assumes an old Kubernetes.
const kubeVersion = "--kube-version=v1.36.3"

// template renders a chart for namespace istio-system.
func template(t testing.TB, release, chart string, args ...string) (string, error) {
	t.Helper()
	return runHelm(t, "istio-system", "", append([]string{"template", release, charts(chart), kubeVersion}, args...)...)
}

// mustTemplate fails the test if the chart rejects the arguments.
func mustTemplate(t testing.TB, release, chart string, args ...string) string {
	t.Helper()
	out, err := template(t, release, chart, args...)
	harness.Must(t, err)
	return out
}

// golden compares a file with the rendered content, or writes the file.
func golden(t *testing.T, file string, content []byte) {
	t.Helper()
	if *rewrite {
		harness.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		harness.Must(t, os.WriteFile(file, content, 0o644))
	}
	there, err := os.ReadFile(file)
	harness.Must(t, err)
	if bytes.Equal(there, content) {
		return
	}
	t.Errorf("%s is out of date: run `make charts`\n%s", file, difference(string(there), string(content)))
}

// difference returns the first different line.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nfile     %s\nrendered %s", i+1, w[i], g[i])
		}
	}
	return "one text is longer"
}
