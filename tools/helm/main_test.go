package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/cluster"
)

var rewrite = flag.Bool("rewrite", false, "write the rendered files to deploy")

// asHelm makes the test program run as helm, so that no other program has to be built.
const asHelm = "BE_HELM"

func TestMain(m *testing.M) {
	if os.Getenv(asHelm) != "" {
		os.Exit(run())
	}
	cluster.Main(m, cluster.Options{Services: true})
}

// limit bounds one run of helm.
const limit = 2 * time.Minute

// answer is the result of a run of helm.
type answer struct {
	out, complaints string
	err             error
}

// charts returns the folder of a chart.
func charts(name string) string { return filepath.Join("..", "..", "deploy", "charts", name) }

// helm runs helm.
func helm(t testing.TB, args ...string) answer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // cleanup functions call it, too
	defer cancel()
	if args[0] == "template" {
		// Without a cluster, helm in a test program assumes an old Kubernetes.
		args = append(args, "--kube-version", "v1.36.3")
	}
	command := exec.CommandContext(ctx, self, args...)
	home := t.TempDir()
	command.Env = []string{asHelm + "=1", "HOME=" + home, "PATH=" + os.Getenv("PATH"), "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err = command.Run()
	return answer{out.String(), complaints.String(), err}
}

// mustHelm fails the test if helm fails.
func mustHelm(t testing.TB, args ...string) string {
	t.Helper()
	a := helm(t, args...)
	if a.err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), a.err, a.complaints)
	}
	return a.out
}

// golden compares a file with the rendered content, or writes the file.
func golden(t *testing.T, file string, content []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
