package readme

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	harness.Must(t, err)
	return string(content)
}

func TestPages_TargetsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		text := read(t, name)
		for _, target := range regexp.MustCompile("(?:`|    )make ([a-z]+(?:-[a-z]+)*)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				t.Errorf("%s names make %s, which is not a target", name, target[1])
			}
		}
	}
}

// declared is the declaration of a test, benchmark or fuzz target.
var declared = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)

// tests returns the names of all tests below folders, alone and with the name of their package.
func tests(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	existing := map[string]bool{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && name != folder && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir // go build changes .git at the same time
			}
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := os.ReadFile(name)
			for _, found := range declared.FindAllStringSubmatch(string(content), -1) {
				existing[found[1]] = true
				existing[filepath.Base(filepath.Dir(name))+"."+found[1]] = true
			}
			return err
		})
		harness.Must(t, err)
	}
	return existing
}

func TestPages_NamedTestsExist(t *testing.T) {
	clientgo, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/client-go/tools/leaderelection").Output()
	harness.Must(t, err)
	existing := tests(t, root, strings.TrimSpace(string(clientgo)))
	for _, page := range pages(t) {
		if page == "CONTRIBUTING.md" { // TestCONTRIBUTING_Index checks it
			continue
		}
		for _, named := range regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(read(t, page), -1) {
			if !existing[named[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, named[1])
			}
		}
	}
}

// TestCONTRIBUTING_Index fails if a row of the table of behaviors has no test, or a test that does not exist in its package.
func TestCONTRIBUTING_Index(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "| behavior | tests |\n| --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	existing := tests(t, root)
	rows := 0
	for row := range strings.Lines(table) {
		rows++
		named := regexp.MustCompile("`(\\w+\\.(?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(row, -1)
		if len(named) == 0 {
			t.Errorf("no test in the row %s", row)
		}
		for _, test := range named {
			if !existing[test[1]] {
				t.Errorf("CONTRIBUTING.md names the test %s, which does not exist", test[1])
			}
		}
	}
	if rows == 0 {
		t.Error("CONTRIBUTING.md has no table of behaviors")
	}
}

// A target that selects no test would pass.
func TestMakefile_NamedTestsExist(t *testing.T) {
	var (
		changedTo = regexp.MustCompile(`\bcd (\S+) &&`)
		selected  = regexp.MustCompile(`-(?:run|bench) '?([\w|]+)'?`)
		function  = regexp.MustCompile(`(?m)^func (?:Test|Benchmark)\w+\(`)
	)
	checked := 0
	for line := range strings.Lines(strings.ReplaceAll(read(t, "Makefile"), "\\\n", " ")) {
		folder := root
		if cd := changedTo.FindStringSubmatch(line); cd != nil {
			folder = filepath.Join(root, cd[1])
		}
		for _, command := range strings.Split(line, "go test ")[1:] {
			var functions string
			for _, word := range strings.Fields(command) {
				if word != "." && !strings.HasPrefix(word, "./") {
					continue
				}
				files, err := filepath.Glob(filepath.Join(folder, word, "*_test.go"))
				harness.Must(t, err)
				for _, file := range files {
					content, err := os.ReadFile(file)
					harness.Must(t, err)
					functions += strings.Join(function.FindAllString(string(content), -1), " ")
				}
			}
			for _, names := range selected.FindAllStringSubmatch(command, -1) {
				for name := range strings.SplitSeq(names[1], "|") {
					checked++
					if !strings.Contains(functions, name) {
						t.Errorf("%s matches no function: go test %s", name, strings.TrimSpace(command))
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no target selects a test")
	}
}

func TestCONTRIBUTING_DirectoriesExist(t *testing.T) {
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[a-z0-9/]+`(?:, )?)+) \\|").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		for folder := range strings.SplitSeq(row[1], ", ") {
			folder = strings.Trim(folder, "`")
			if info, err := fs.Stat(os.DirFS(root), folder); err != nil || !info.IsDir() {
				t.Errorf("CONTRIBUTING.md names the directory %s, which does not exist: %v", folder, err)
			}
		}
	}
}

// TestBenchmarks_LatestResults: the tables name the results they were made from.
func TestBenchmarks_LatestResults(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, "tests/peers/results/latest.json"))))[:16]
	for _, name := range []string{"docs/benchmarks.md"} {
		text := read(t, name)
		if !strings.Contains(text, "of results "+sum) {
			t.Errorf("%s is not of tests/peers/results/latest.json: run `make bench ARGS=-render`", name)
		}
		if n := strings.Count(text, "of results "); n != strings.Count(text, "of results "+sum) {
			t.Errorf("%s is of several results", name)
		}
	}
}
