package main

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// place is a cluster with a namespace for the test.
type place struct {
	*cluster.Cluster
	namespace string
	kube      kubernetes.Interface
}

func newPlace(t *testing.T) place {
	t.Helper()
	c := cluster.Shared(t)
	kube, err := kubernetes.NewForConfig(c.Admin())
	harness.Must(t, err)
	p := place{c, c.Namespace(t), kube}
	t.Cleanup(func() { p.clear(t) })
	return p
}

// helm runs helm in the namespace.
func (p place) helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return runHelm(t, p.namespace, p.Kubeconfig(), args...)
}

func (p place) mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.helm(t, args...)
	harness.Must(t, err)
	return out
}

// refused checks that helm fails with all of the given words.
func (p place) refused(t *testing.T, args []string, what ...string) {
	t.Helper()
	_, err := p.helm(t, args...)
	wantError(t, err, what...)
}

// wantError checks that an error of helm has all of the given words.
func wantError(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("helm succeeded, want an error with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("missing %q in: %v", word, err)
		}
	}
}

// pilot returns the arguments that install a revision.
func pilot(verb, release string, more ...string) []string {
	return append([]string{verb, release, charts("pilot"), "--set", "image=pilot", "--set", "caBundle.file=/ca.pem"}, more...)
}

// tags returns the arguments that set the default revision.
func tags(verb, release string, more ...string) []string {
	return append([]string{verb, release, charts("tags")}, more...)
}

// clear uninstalls all releases, so that the namespace can be deleted.
func (p place) clear(t *testing.T) {
	for _, release := range strings.Fields(p.mustHelm(t, "list", "--short")) {
		p.mustHelm(t, "uninstall", release)
	}
}

// build builds a program of a module of the repository.
func build(t *testing.T, module, what, program string) {
	t.Helper()
	err := example.Build(t.Context(), filepath.Join("..", "..", module), what, program, "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
	harness.Must(t, err)
}

// runPods runs Pods as processes until the test ends.
func (p place) runPods(t *testing.T, program string) {
	t.Helper()
	node.Start(t, node.Options{
		Config: p.Admin(), Dir: t.TempDir(), Name: "node-of-" + p.namespace, Images: map[string]string{"pilot": program},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}
