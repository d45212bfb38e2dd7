package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fixture is the room of testdata/fixture, a module of its own.
func fixture(t *testing.T) (options, *bytes.Buffer) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("testdata", "fixture"))
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	excused := filepath.Join(t.TempDir(), "equivalent.txt")
	if err := os.WriteFile(excused, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	table := []room{{
		name: "fixture", packages: []string{"."}, budget: 4 * time.Minute,
		judges: []judge{{pkg: "."}},
	}}
	return options{
		root: root, work: kept, excuses: excused, workers: 2, out: out, table: table, rooms: table,
	}, out
}

// kept is the work folder of all tests: what is known of the fixture is not tried again.
var kept string

func TestMain(m *testing.M) {
	var err error
	if kept, err = os.MkdirTemp("", "mutants"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(kept)
		os.Exit(code)
	}))
}

const short = "example.com/fixture "

// mustSurvive are those mutants of the fixture that its tests let live, all of them.
var mustSurvive = []string{
	"Loose: <= for <: n < 10",
	"Either: operand false: b",
	"New: field removed: Every: 5 * time.Second",
	"New: doubled: 5 * time.Second",
	"Counter.Add: defer removed: defer c.note()",
	"Counter.Add: assignment removed: c.n = 0",
	"Counter.note: assignment removed: c.quiet = max(c.quiet, c.n)",
	"Counter.note: min for max: max(c.quiet, c.n)",
	"Wait: case removed: <-b",
	"Unreached: assignment removed: c.n = 1",
	"Earlier: bound for Before: before.Before(now)",
	"Earlier: value true: before.Before(now)",
}

func TestReportsExactlyWhatSurvives(t *testing.T) {
	o, out := fixture(t)
	sound, err := o.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sound {
		t.Error("survivors without a reason, and all is said to be well")
	}
	got := survivors(out.String())
	want := make([]string, 0, len(mustSurvive))
	for _, name := range mustSurvive {
		want = append(want, short+name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("survived:\n%s\nwant:\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out)
	}
	known, err := readState(o.work, "fixture")
	if err != nil {
		t.Fatal(err)
	}
	for _, killed := range mustBeKilled {
		if r := known.Results[short+killed.key]; r.Outcome != killed.outcome || r.By != killed.by {
			t.Errorf("%s: %+v, want %s by %s", killed.key, r, killed.outcome, killed.by)
		}
	}
}

// mustBeKilled has one of each kind.
var mustBeKilled = []struct{ key, outcome, by string }{
	{"Limit: <= for <: n < 10", outcomeKilled, "TestLimit"},
	{"Loose: value true: n < 10", outcomeKilled, "TestLimit"},
	{"Both: operand true: a", outcomeKilled, "TestTruths"},
	{"Either: operand false: a", outcomeKilled, "TestTruths"},
	{"Either: flipped: true", outcomeKilled, "TestTruths"},
	{"New: field removed: Name: name", outcomeKilled, "TestConfig"},
	{"New: element removed: \"get\"", outcomeKilled, "TestConfig"},
	{"Config.Open: condition true: c.Name == \"\"", outcomeKilled, "TestConfig"},
	{"Config.Open: error dropped: errors.New(\"a name is needed\")", outcomeKilled, "TestConfig"},
	{"Config.Pair: swapped arguments: pair(c.Name, c.Spare)", outcomeKilled, "TestConfig"},
	{"Config.Pair: error dropped: pair(c.Name, c.Spare)", outcomeKilled, "TestConfig"},
	{"Counter.Add: case removed: case \"two\"", outcomeKilled, "TestCounter"},
	{"Counter.Add: count removed: c.n++", outcomeKilled, "TestCounter"},
	{"Counter.Add: defer removed: defer c.mu.Unlock()", outcomeTimeout, "TestCounter"},
	{"Wait: case removed: n := <-a", outcomeTimeout, "TestWait"},
	{"Forever: count removed: i++", outcomeTimeout, "TestForever"},
	{"Earlier: zero: -later", outcomeKilled, "TestEarlier"},
	{"Earlier: doubled: -later", outcomeKilled, "TestEarlier"},
	{"Earlier: value false: before.Before(now)", outcomeKilled, "TestEarlier"},
}

func survivors(out string) []string {
	var keys []string
	for line := range strings.Lines(out) {
		if key, ok := strings.CutPrefix(line, "survived: "); ok {
			keys = append(keys, strings.TrimSpace(key))
		}
	}
	return keys
}

// What the tool writes for people, and logs, is no mutant; nor is what cannot compile.
func TestLeavesTextAlone(t *testing.T) {
	o, out := fixture(t)
	o.only = true
	if _, err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"2*c.Every", "Config.String", "no name", "init"} {
		if strings.Contains(out.String(), text) {
			t.Errorf("a mutant of %s:\n%s", text, out)
		}
	}
}

func TestReasons(t *testing.T) {
	o, out := fixture(t)
	text := "# A comment.\n"
	for _, name := range mustSurvive[1:] {
		text += short + name + "\n    a reason\n    of two lines\n"
	}
	killed := short + "Limit: <= for <: n < 10"
	gone := short + "Limit: <= for <: n < 11"
	text += killed + "\n\tnone\n" + gone + "\n\tnone\n"
	if err := os.WriteFile(o.excuses, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	sound, err := o.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := survivors(out.String()); sound || len(got) != 1 || got[0] != short+mustSurvive[0] {
		t.Errorf("sound: %v, survivors: %v", sound, got)
	}
	for _, want := range []string{
		"excuses nothing: " + killed + " (killed by TestLimit)",
		"excuses nothing: " + gone + " (there is no such mutant)",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}

	// The same build again: everything is known, no test runs.
	out.Reset()
	o.page = filepath.Join(t.TempDir(), "page.md")
	if _, err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "pass 1") {
		t.Errorf("tried again:\n%s", out)
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| fixture | %d | %d | 3 | %d | 1 | 0 | all |\n", all, all-len(mustSurvive), len(mustSurvive)-1)
	for _, want := range []string{row, "- `" + short + mustSurvive[1] + "`: a reason of two lines\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is missing on the page:\n%s", want, page)
		}
	}
}

// Rooms are tried in one tree or another: a page keeps what it says of those that this run is not about.
func TestAPageKeepsOtherRooms(t *testing.T) {
	o := options{work: t.TempDir(), page: filepath.Join(t.TempDir(), "page.md"), known: true}
	o.excuses = filepath.Join(o.work, "equivalent.txt")
	if err := os.WriteFile(o.excuses, []byte("x A: b\n  a reason\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := []judge{{pkg: "./x"}, {pkg: "./y", second: true}}
	for _, name := range []string{"one", "two", "three", "untried"} {
		o.table = append(o.table, room{name: name, packages: []string{"./x"}, judges: second})
	}
	o.table[2].judges = second[:1]
	write := func(rooms []room, mutants, passes int) string {
		t.Helper()
		for _, r := range o.table[:3] {
			known := state{Mutants: mutants, Results: map[string]result{
				"x A: b": {Outcome: outcomeSurvived, Passes: passes}, "x C: d": {Outcome: outcomeSurvived, Passes: 2}, "x E: f": {Outcome: outcomeTimeout},
			}}
			if err := os.MkdirAll(filepath.Join(o.work, r.name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := known.write(o.work, r.name); err != nil {
				t.Fatal(err)
			}
		}
		o.rooms = rooms
		if sound, err := o.run(t.Context()); err != nil || !sound {
			t.Fatal(sound, err)
		}
		page, err := os.ReadFile(o.page)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(string(page), pageHead)
	}
	page := func(one, two, three string) string {
		const list = "\n## Equivalent in %s\n\n- `x A: b`: a reason\n\n## Survived in %s\n\n- `x C: d`\n"
		text := "| one |" + one + "| two |" + two + "| three |" + three
		for _, name := range []string{"one", "two", "three"} {
			text += fmt.Sprintf(list, name, name)
		}
		return text
	}
	const before, own, unit, all = " 5 | 1 | 1 | 1 | 1 | 2 |", " own |\n", " unit |\n", " all |\n"
	if got, want := write(o.table, 5, 0), page(before+own, before+own, before+all); got != want {
		t.Errorf("the page says\n%s\nand not\n%s", got, want)
	}
	const after = " 9 | 1 | 1 | 1 | 1 | 6 |"
	if got, want := write(o.table[1:2], 9, 1), page(before+own, after+unit, before+all); got != want {
		t.Errorf("the page says\n%s\nand not\n%s", got, want)
	}
	if got, want := write(o.table[:1], 9, 2), page(after+all, after+unit, before+all); got != want {
		t.Errorf("the page says\n%s\nand not\n%s", got, want)
	}
}

// all is how many mutants the fixture has.
const all = 52

func TestBadReasons(t *testing.T) {
	for text, want := range map[string]string{
		"a b: c: d\n":                          "has no reason",
		"    lost\n":                           "without a mutant",
		"a b: c: d\n  r\na b: c: d\n  again\n": "twice",
		"a b: c: d\ne f: g: h\n  r\n":          "has no reason",
	} {
		path := filepath.Join(t.TempDir(), "equivalent.txt")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readExcuses(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestUnknownRoom(t *testing.T) {
	_, err := parseOptions([]string{"-rooms=cellar"})
	if err == nil || !strings.Contains(err.Error(), "core") {
		t.Errorf("%v does not name the rooms", err)
	}
}

// The same seed draws the same mutants.
func TestDraw(t *testing.T) {
	mutants := make([]*mutant, 100)
	for i := range mutants {
		mutants[i] = &mutant{id: i, pkg: &pkg{}, file: &file{}, from: i}
	}
	draw := func(seed uint64) []*mutant {
		return options{n: 10, seed: seed, out: &bytes.Buffer{}}.choose(mutants)
	}
	if a, b := draw(1), draw(1); !slices.Equal(a, b) || len(a) != 10 {
		t.Error("two draws of one seed differ")
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("two seeds draw the same")
	}
}

// A run can begin at a mutant of the list.
func TestFrom(t *testing.T) {
	var all []*mutant
	for id := 1; id <= 9; id++ {
		all = append(all, &mutant{id: id})
	}
	for from, want := range map[int][2]int{0: {1, 9}, 1: {1, 9}, 4: {4, 6}, 9: {9, 1}} {
		chosen := options{from: from}.choose(all)
		if len(chosen) != want[1] || chosen[0].id != want[0] || len(all) != 9 || all[0].id != 1 {
			t.Errorf("from %d: %d chosen, the first %d", from, len(chosen), chosen[0].id)
		}
	}
}

// With -own, other packages' tests do not run. What survived is not settled by that: the
// next run without it tries it again, and only it.
func TestOwnTestsAlone(t *testing.T) {
	r := room{packages: []string{"./a/b"}}
	for pkg, want := range map[string]bool{"./a/b": true, "./a/b/c": true, "./a/bc": false, "./a": false} {
		if got := r.has(judge{pkg: pkg}); got != want {
			t.Errorf("room of ./a/b has %s: %v", pkg, got)
		}
	}
	o, out := fixture(t)
	o.work, o.own, o.n, o.seed = t.TempDir(), true, 12, 3
	if _, err := o.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	survived := len(survivors(out.String()))
	if survived == 0 || survived == o.n {
		t.Fatalf("%d of %d survived, which shows nothing:\n%s", survived, o.n, out)
	}
	for _, own := range []bool{true, false} {
		out.Reset()
		o.own = own
		if _, err := o.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := strings.Contains(out.String(), fmt.Sprintf("pass 1: %d mutants", survived))
		if tried := strings.Contains(out.String(), "pass 1:"); tried != !own || again != !own {
			t.Errorf("own %v after own: %s", own, out)
		}
	}
}

// Of rooms that share a package, a reason that fits no mutant is the business of the one that has
// the function, and otherwise of the one that has the rest.
func TestWhoseReasonsAreStale(t *testing.T) {
	one := &pkg{path: "x/y/z"}
	at := func(fn string) *mutant { return &mutant{pkg: one, fn: fn} }
	here := &planted{mutants: []*mutant{at("Here")}, elsewhere: map[string]bool{"y/z T.There": true}}
	for key, want := range map[string][3]bool{ // a room of all files, one of some, one of the rest
		"y/z Here: a: b":    {true, true, true},
		"y/z T.There: a: b": {true, false, false},
		"y/z Gone: a: b":    {true, false, true},
	} {
		for i, room := range []room{{}, {files: []string{"a.go"}}, {not: []string{"b.go"}}} {
			here.room = room
			known := here.elsewhere
			if i == 0 {
				here.elsewhere = nil // all files are its own
			}
			if got := here.owns(key); got != want[i] {
				t.Errorf("%q, room %+v: %v", key, room, got)
			}
			here.elsewhere = known
		}
	}
}
