package library

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	replacements = "incumbent.dev/incumbent/tests/repo/library/testdata/replacements/"
	electorPkg   = "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	lockPkg      = electorPkg + "/k8sresourcelock"
)

// adapted are the imports that a move from client-go changes. Two small packages replace requirements that this module does not have.
var adapted = map[string]string{
	"k8s.io/client-go/tools/leaderelection":              electorPkg,
	"k8s.io/client-go/tools/leaderelection/resourcelock": lockPkg,
	"github.com/stretchr/testify/assert":                 replacements + "assert",
	"github.com/google/go-cmp/cmp":                       replacements + "cmp",
}

// others are the tests of client-go which use its unexported fields and functions, or the LeaseCandidate, which stays in client-go.
var others = []string{
	"TestLabelUpdate", "TestLeaderElectionHealthChecker", "TestLeaseCandidateAck", "TestLeaseCandidateCreation", "TestReleaseLeaseLeases",
	"TestReleaseMethodCallsGet", "TestTryAcquireOrRenewLeases", "TestTryCoordinatedRenew", "TestUpdateWithNilLabelsOnLease",
	"TestUpdateWithNilLabelsOnLeaseLock",
}

// client-go's own tests, with adapted imports, pass if they use the exported API only.
func TestClientGo_OwnTests(t *testing.T) {
	t.Parallel()
	module, err := cluster.ModuleFolder(t.Context(), root, "k8s.io/client-go")
	harness.Must(t, err)
	folder := filepath.Join(module, "tools", "leaderelection")
	for _, x := range []struct {
		files, pkg string
		passed     int
	}{{"*_test.go", electorPkg, 5}, {"resourcelock/*_test.go", lockPkg, 8}} {
		t.Run(filepath.Base(x.pkg), func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob(filepath.Join(folder, x.files))
			if err != nil || len(files) == 0 {
				t.Fatalf("no tests in %s: %v", folder, err)
			}
			s := &suite{t: t, folder: t.TempDir(), pkg: x.pkg}
			for _, file := range files {
				s.add(file)
			}
			for s.removeUncompilable() {
			}
			for _, name := range s.removed {
				if strings.HasPrefix(name, "Test") && !slices.Contains(others, name) {
					t.Errorf("%s does not compile:\n%s", name, s.why[name])
				}
			}
			run := exec.CommandContext(t.Context(), s.binary(), "-test.v", "-test.timeout", harness.Patience.String())
			out, err := run.CombinedOutput()
			if got := bytes.Count(out, []byte("\n--- PASS: ")); err != nil || got != x.passed {
				t.Errorf("%d tests passed, want %d: %v\n%s", got, x.passed, err, out)
			}
			t.Logf("%d of client-go's tests passed", x.passed)
		})
	}
}

// suite is a copy of test files without the functions that do not compile.
type suite struct {
	t           *testing.T
	folder, pkg string
	fset        token.FileSet
	files       map[string]*ast.File
	removed     []string
	why         map[string]string
}

func (s *suite) add(path string) {
	file, err := parser.ParseFile(&s.fset, path, nil, 0)
	harness.Must(s.t, err)
	file.Name.Name = "adapted"
	for _, spec := range file.Imports {
		old, _ := strconv.Unquote(spec.Path.Value)
		if now, ok := adapted[old]; ok {
			spec.Path.Value = strconv.Quote(now)
		}
	}
	dot := &ast.ImportSpec{Name: ast.NewIdent("."), Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(s.pkg)}}
	file.Decls = slices.Insert(file.Decls, 0, ast.Decl(&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{dot}}))
	if s.files == nil {
		s.files = map[string]*ast.File{}
		s.why = map[string]string{}
	}
	s.files[filepath.Base(path)] = file
}

func (s *suite) binary() string { return filepath.Join(s.folder, "adapted.test") }

var position = regexp.MustCompile(`(?m)([a-z_]+_test\.go):(\d+):\d+: (.*)$`)

// removeUncompilable compiles the files. It removes each function and import with an error, and reports whether it removed any.
func (s *suite) removeUncompilable() bool {
	args := []string{"test", "-c", "-gcflags=-e", "-o", s.binary()}
	for name, file := range s.files {
		var source bytes.Buffer
		harness.Must(s.t, format.Node(&source, &s.fset, file))
		path := filepath.Join(s.folder, name)
		harness.Must(s.t, os.WriteFile(path, source.Bytes(), 0o600))
		args = append(args, path)
	}
	build := exec.CommandContext(s.t.Context(), "go", args...)
	build.Dir = root
	out, err := build.CombinedOutput()
	if err == nil {
		return false
	}
	errs := position.FindAllStringSubmatch(string(out), -1)
	before := len(s.removed)
	for name := range s.files {
		s.remove(name, errs)
	}
	if len(s.removed) == before {
		s.t.Fatalf("compile: %v\n%s", err, out)
	}
	return true
}

// remove removes the declarations of a file at the positions of errors in the written file.
func (s *suite) remove(name string, errs [][]string) {
	file := s.files[name]
	written, err := parser.ParseFile(&s.fset, filepath.Join(s.folder, name), nil, 0)
	harness.Must(s.t, err)
	var decls []ast.Decl
	for _, decl := range written.Decls {
		first, last := s.fset.Position(decl.Pos()).Line, s.fset.Position(decl.End()).Line
		lines := map[int]string{}
		for _, e := range errs {
			if line, _ := strconv.Atoi(e[2]); e[1] == name && line >= first && line <= last {
				lines[line] = e[3]
			}
		}
		switch d := decl.(type) {
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				d.Specs = slices.DeleteFunc(d.Specs, func(spec ast.Spec) bool {
					why, failed := lines[s.fset.Position(spec.Pos()).Line]
					if failed {
						s.removed = append(s.removed, "import: "+why)
					}
					return failed
				})
				if len(d.Specs) > 0 {
					decls = append(decls, d)
				}
				continue
			}
			decls = append(decls, d)
		case *ast.FuncDecl:
			if len(lines) == 0 {
				decls = append(decls, d)
				continue
			}
			s.removed = append(s.removed, d.Name.Name)
			s.why[d.Name.Name] = fmt.Sprint(lines)
		}
	}
	written.Decls = decls
	*file = *written
}
