package imports

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"incumbent.dev/incumbent/internal/testutil/source"
)

const root = "../../.."

func TestModule(t *testing.T) {
	m, err := source.Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Check(m, rules) {
		t.Error(v)
	}
}

// adapters are the modules for other programs.
func TestAdapters_ExplainNames(t *testing.T) {
	m, err := source.Load(os.DirFS(root + "/adapters/controllerruntime"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range unexplained(m) {
		t.Error(v)
	}
}

func TestIndirectDependencies(t *testing.T) {
	for _, rule := range rules {
		if len(rule.without) == 0 {
			continue
		}
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+rule.path+"/...")
		list.Dir = root
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list of %s: %v", rule.path, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, banned := range rule.without {
				if below(dep, banned) {
					t.Errorf("%s must not depend on %s, but depends on %s", rule.path, banned, dep)
				}
			}
		}
	}
}

func TestRules_AllowedPathsExist(t *testing.T) {
	for _, rule := range rules {
		for _, allowed := range append(rule.allowed, rule.testImports...) {
			if !slices.ContainsFunc(rules, func(other importRule) bool { return leads(allowed, other.path) }) {
				t.Errorf("%s allows %s, which has no rule", rule.path, allowed)
			}
		}
	}
}

func TestCheck_Violations(t *testing.T) {
	const module = "incumbent.dev/incumbent/"
	importing := func(pkg, path string) string {
		return "package " + pkg + "\n\nimport _ \"" + path + "\"\n"
	}
	cases := []struct {
		name, file, content string
		want                string // "" if there is no violation
	}{
		{"ground floor looks up", "pkg/kube/a.go", importing("kube", module+"pilot/leaderelection"),
			"pkg/kube must not import pilot/leaderelection"},
		{"revisions take a client", "pkg/revisions/a.go", importing("revisions", module+"pkg/kube"), ""},
		{"elector takes prometheus", elector + "/a.go",
			importing("k8sleaderelection", "github.com/prometheus/client_golang/prometheus"), "must not import github.com/prometheus"},
		{"core takes a context", core + "/a.go", importing("core", "context"), "must not import context"},
		{"core reads the clock", core + "/a.go", "package core\n\nimport t \"time\"\n\nvar now = t.Now\n", "must not read a clock: time.Now"},
		{"core takes durations", core + "/a.go", "package core\n\nimport \"time\"\n\nconst tick = time.Second\n", ""},
		{"controller's test knows elections", "pilot/controllers/namespace/a_test.go", importing("namespace", module+elections),
			"pilot/controllers must not import pilot/leaderelection"},
		{"server's test uses the cluster", "pilot/bootstrap/a_test.go", importing("bootstrap", module+"tests/cluster"), ""},
		{"environment read below", "pkg/kube/a.go", "package kube\n\nimport \"os\"\n\nvar home = os.Getenv(\"HOME\")\n",
			"pass the value as an argument"},
		{"environment read where constructors do", elections + "/environment.go",
			"package leaderelection\n\nimport \"os\"\n\nvar lookup = os.LookupEnv\n", ""},
		{"environment read in a file of that name elsewhere", elections + "/fence/environment.go",
			"package fence\n\nimport \"os\"\n\nvar lookup = os.LookupEnv\n", "pass the value as an argument"},
		{"environment read by a command", "cmd/pilot/a.go", "package main\n\nimport \"os\"\n\nvar home, _ = os.LookupEnv(\"HOME\")\n", ""},
		{"flag elsewhere", "pilot/bootstrap/a.go", importing("bootstrap", "istio.io/pkg/env"), "must be registered in pkg/features"},
		{"flag where flags are", "pkg/features/a.go", importing("features", "istio.io/pkg/env"), ""},
		{"no rule", "misc/a.go", "package misc\n", "has no import rule"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.want, found(t, c.file, c.content))
		})
	}
}

func TestCheck_MissingDoc(t *testing.T) {
	expect(t, "no doc.go", check(t, map[string]string{"pkg/kube/a.go": "package kube\n"}))
	expect(t, "must begin with", check(t, map[string]string{"pkg/kube/doc.go": "// Nice things.\npackage kube\n"}))
	expect(t, "must begin with", check(t, map[string]string{"cmd/pilot/doc.go": "// Package main is.\npackage main\n"}))
	expect(t, "", check(t, map[string]string{"cmd/pilot/doc.go": "// Command pilot is.\npackage main\n"}))
}

func TestCheck_Comments(t *testing.T) {
	for content, want := range map[string]string{
		"func F() {}\n":                                             "F has no comment",
		"// F does.\nfunc F() {}\n":                                 "",
		"type t struct{}\n\nfunc (t) F() {}\n":                      "",
		"// T is.\ntype T[P any] struct{}\n\nfunc (*T[P]) F() {}\n": "T.F has no comment",
		"type T int\n":                                              "T has no comment",
		"const C = 1\n":                                             "C has no comment",
		"// The letters.\nconst (\n\tA = 1\n\tB = 2\n)\n":           "",
		"// Errors.\nvar (\n\tErrA = 1\n)\n":                        "ErrA has no comment",
		"// T is.\ntype T struct {\n\tF int\n}\n":                   "T.F has no comment",
		"// T is.\ntype T struct {\n\tF int // is\n}\n":             "",
		// A comment above counts if it names the field.
		"// T is.\ntype T struct {\n\t// F and G are.\n\tF int\n\tG int\n\tH int\n}\n": "T.H has no comment",
		"// T is.\ntype T struct {\n\t// F is.\n\tF struct {\n\t\tG int\n\t}\n}\n":     "T.F.G has no comment",
		"// I is.\ntype I interface {\n\tF()\n}\n":                                     "I.F has no comment",
	} {
		got := found(t, "pkg/kube/a.go", "package kube\n\n"+content)
		expect(t, want, got)
		if want != "" && len(got) != 1 {
			t.Errorf("%q: %v", content, got)
		}
	}
	expect(t, "", found(t, "internal/members/a.go", "package members\n\nfunc F() {}\n"))
}

// found checks one file with a valid doc.go.
func found(t *testing.T, file, content string) []Violation {
	t.Helper()
	folder := file[:strings.LastIndex(file, "/")]
	pkg := strings.Fields(content)[1]
	doc := "// Package " + pkg + " is.\npackage " + pkg + "\n"
	if pkg == "main" {
		doc = "// Command main is.\npackage main\n"
	}
	return check(t, map[string]string{file: content, folder + "/doc.go": doc})
}

func check(t *testing.T, files map[string]string) []Violation {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module incumbent.dev/incumbent\n")}}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	m, err := source.Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return Check(m, rules)
}

// expect fails if no violation contains want, or if there is one and want is "".
func expect(t *testing.T, want string, got []Violation) {
	t.Helper()
	if want == "" {
		if len(got) > 0 {
			t.Errorf("reported %v, want nothing", got)
		}
		return
	}
	if len(got) == 0 {
		t.Fatalf("reported nothing, want %q", want)
	}
	for _, v := range got {
		if strings.Contains(v.Problem, want) {
			return
		}
	}
	t.Errorf("reported %v, want %q", got, want)
}
