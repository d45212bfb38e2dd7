package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

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
	if err != nil {
		t.Fatal(err)
	}
	p := place{c, c.Namespace(t), kube}
	t.Cleanup(func() { p.clear(t) })
	return p
}

// helm runs helm in the namespace.
func (p place) helm(t *testing.T, args ...string) answer {
	t.Helper()
	return helm(t, append(args, "--kubeconfig", p.Kubeconfig(), "--namespace", p.namespace)...)
}

func (p place) mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	a := p.helm(t, args...)
	if a.err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), a.err, a.complaints)
	}
	return a.out
}

// refused checks that helm fails with all of the given words.
func (p place) refused(t *testing.T, args []string, what ...string) {
	t.Helper()
	a := p.helm(t, args...)
	if a.err == nil {
		t.Errorf("helm %s succeeded: %s", strings.Join(args, " "), a.out)
	}
	for _, word := range what {
		if !strings.Contains(a.complaints, word) {
			t.Errorf("helm %s: missing %q in %s", strings.Join(args, " "), word, a.complaints)
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
func build(t *testing.T, module, what string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, what)
	command.Dir, command.Env = filepath.Join("..", "..", module), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", what, err, out)
	}
	return program
}

// runPods runs Pods as processes until the test ends.
func (p place) runPods(t *testing.T, program string) {
	t.Helper()
	node.Start(t, node.Options{
		Config: p.Admin(), Dir: t.TempDir(), Name: "node-of-" + p.namespace, Images: map[string]string{"pilot": program},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func(context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ok, how := is(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %s", what, how)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
