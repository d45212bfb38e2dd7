package library

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// sizes is set by `make size`, because linking both programs takes long.
var sizes = flag.Bool("sizes", false, "build the programs and write the sizes to docs/migration.md, too")

// A program that imports the library has the same log output as without it, and no goroutines that it did not start.
func TestImport_KeepsLogging(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "program")
	harness.Must(t, example.Build(t.Context(), root, "./tests/repo/library/testdata/logging/main.go", binary))
	var out, errs bytes.Buffer
	program := exec.CommandContext(t.Context(), binary)
	program.Stdout, program.Stderr = &out, &errs
	harness.Must(t, program.Run())
	const want = `log, to stderr
INFO slog, by log's default
level=DEBUG msg="slog, by the program's handler"
level=INFO msg="log, by the program's handler"
goroutines: 1
`
	if errs.String() != want {
		t.Errorf("stderr:\n%s\nwant:\n%s", &errs, want)
	}
	if out.Len() != 0 {
		t.Errorf("stdout: %s", &out)
	}
}

// dependencies returns the packages that a program or packages need.
func dependencies(t *testing.T, of ...string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, of...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list of %s: %v", of, err)
	}
	return strings.Fields(string(out))
}

// Packages for other programs do not need Istio's packages: its flags depend on its log package, which replaces the logging of the
// program. The elector, the locks and the state of elections also work without Prometheus and controller-runtime.
func TestDependencies(t *testing.T) {
	for _, c := range []struct{ banned, packages []string }{
		{
			[]string{"istio.io", "github.com/prometheus", "sigs.k8s.io/controller-runtime"},
			[]string{"./pilot/leaderelection/k8sleaderelection/...", "./internal/inspect", "./internal/audit", "./internal/members"},
		},
		{
			[]string{"istio.io"},
			[]string{"./pilot/leaderelection/...", "./pilot/controllers/reconcile", "./pilot/page", "./internal/migration", "./pkg/kube", "./pkg/revisions"},
		},
	} {
		for _, dependency := range dependencies(t, c.packages...) {
			for _, banned := range c.banned {
				if strings.HasPrefix(dependency, banned+"/") {
					t.Errorf("%s must not depend on %s", c.packages, dependency)
				}
			}
		}
	}
}

// The example of README.md has few more packages than the same program with client-go.
func TestPackagesOfTheExample(t *testing.T) {
	ours, err := example.Write(root, t.TempDir())
	harness.Must(t, err)
	const theirs = "./tests/repo/library/testdata/clientgo/main.go"
	of, than := len(dependencies(t, ours)), len(dependencies(t, theirs))
	ratio := float64(of) / float64(than)
	t.Logf("packages: %d of ours, %d with client-go alone: %.2f times", of, than, ratio)
	if ratio > 1.25 {
		t.Errorf("%d packages are more than 1.25 times %d", of, than)
	}
	if !*sizes {
		return
	}
	var size [2]float64
	for i, file := range []string{ours, theirs} {
		binary := filepath.Join(t.TempDir(), "program")
		harness.Must(t, example.Build(t.Context(), root, file, binary, "-ldflags=-s -w"))
		info, err := os.Stat(binary)
		harness.Must(t, err)
		size[i] = float64(info.Size()) / 1e6
	}
	p := filepath.Join(root, "docs", "migration.md")
	text, err := os.ReadFile(p)
	harness.Must(t, err)
	rows := fmt.Sprintf("| packages | %d | %d |\n| stripped binary | %.1f MB | %.1f MB |\n", of, than, size[0], size[1])
	table := regexp.MustCompile(`\| packages \|.*\n\| stripped binary \|.*\n`)
	if !table.Match(text) {
		t.Fatalf("%s has no table of sizes", p)
	}
	if err := os.WriteFile(p, table.ReplaceAll(text, []byte(rows)), 0o644); err != nil { //nolint:gosec // a page
		t.Fatal(err)
	}
	t.Logf("stripped binary: %.2f times. Wrote %s", size[0]/size[1], p)
}
