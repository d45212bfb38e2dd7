package main

import (
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that fails without a mutant ends a run before anything is tried. What survived an earlier one is still known then,
// for the page and for the next run.
func TestSurvivorsAreKeptWhenATestFails(t *testing.T) {
	o, out := fixture(t)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(o.root)); err != nil {
		t.Fatal(err)
	}
	o.root, o.work, o.n, o.seed = copied, t.TempDir(), 12, 3
	run := func() (listed []string, err error) {
		out.Reset()
		_, err = o.run(t.Context())
		return survivors(out.String()), err
	}
	before, err := run()
	if err != nil || len(before) == 0 || len(before) == o.n {
		t.Fatalf("%v, of %d: %q", err, o.n, before)
	}
	broken := filepath.Join(copied, "broken_test.go")
	if err := os.WriteFile(broken, []byte("package fixture\n\nimport \"testing\"\n\nfunc TestBroken(t *testing.T) { t.Fatal(\"broken\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.again, o.seed = true, 99
	for range 2 {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), "TestBroken of . fails without a mutant") {
			t.Fatal(err)
		}
	}
	o.page = filepath.Join(t.TempDir(), "page.md")
	o.known = true
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range before {
		if !strings.Contains(string(page), "- `"+key+"`\n") {
			t.Errorf("%s is missing on the page:\n%s", key, page)
		}
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	o.page, o.known = "", false
	if after, err := run(); err != nil || !slices.Equal(after, before) {
		t.Errorf("%v, survived: %q, want %q", err, after, before)
	}
	if known, err := readState(o.work, "fixture"); err != nil || len(known.Results) != o.n {
		t.Errorf("%v, %d results", err, len(known.Results))
	}
}

// Nor is what a spent budget has left: it is listed, and tried by the next run.
func TestSurvivorsAreKeptWhenTheTimeIsOver(t *testing.T) {
	one, in := &pkg{path: "x/y/z"}, &file{tokens: token.NewFileSet().AddFile("z.go", -1, 9)}
	a, b := &mutant{pkg: one, file: in, fn: "A"}, &mutant{pkg: one, file: in, fn: "B"}
	p := &planted{sum: "new", mutants: []*mutant{a, b}}
	old := state{Sum: "old", Results: map[string]result{a.key(): {Outcome: outcomeSurvived}, b.key(): {Outcome: outcomeKilled}, "gone": {Outcome: outcomeSurvived}}}
	known := old.after(p, true)
	if got := known.all(); len(known.Results) != 1 || len(got) != 2 || got[a.key()].Outcome != outcomeSurvived {
		t.Errorf("%+v", known)
	}
	if tally := count(room{}, p, known, nil); tally.untried != 0 || len(tally.survivors) != 1 || tally.killed != 1 {
		t.Errorf("%+v", tally)
	}
	// The next run of the same build, too, and without -again; of another build nothing is believed.
	if got := known.after(p, false); len(got.Results) != 1 || len(got.Earlier) != 1 {
		t.Errorf("%+v", got)
	}
	if got := old.after(p, false); len(got.all()) != 0 {
		t.Errorf("%+v", got)
	}
}
