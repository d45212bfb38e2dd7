package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"incumbent.dev/incumbent/tests/internal/source"
)

func findings(t *testing.T, name, content string) []Finding {
	t.Helper()
	m, err := source.Load(fstest.MapFS{
		"go.mod": {Data: []byte("module example.dev/house\n")},
		name:     {Data: []byte(content)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return check(m)
}

func TestTheListIsWellFormed(t *testing.T) {
	if _, err := parseExceptions(allowed); err != nil {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	long := func(lines int) string { return strings.Repeat("\tf()\n", lines) }
	cases := []struct {
		name, file, content string
		want                []string // the rules that are broken, in order
	}{
		{"clock", "a.go", "package a\n\nimport \"time\"\n\nvar t = time.Now()\n", []string{ruleClock}},
		{"clock as a value", "a.go", "package a\n\nimport \"time\"\n\nvar now = time.Now\n", []string{ruleClock}},
		{"clock by another name", "a.go", "package a\n\nimport x \"time\"\n\nvar d = x.Since(x.Time{})\n", []string{ruleClock}},
		{"sleep", "a.go", "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{ruleClock}},
		{"durations", "a.go", "package a\n\nimport \"time\"\n\nconst d = time.Second\n", nil},
		{"clock in a test", "a_test.go", "package a\n\nimport \"time\"\n\nvar t = time.Now()\n", nil},
		{"context", "a.go", "package a\n\nimport \"context\"\n\nvar c = context.Background()\n", []string{ruleContext}},
		{"context to do", "a.go", "package a\n\nimport \"context\"\n\nvar c = context.TODO()\n", []string{ruleContext}},
		{"context taken", "a.go", "package a\n\nimport \"context\"\n\nfunc f(ctx context.Context) {}\n", nil},
		{"test sleeps", "a_test.go", "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{ruleSleep}},
		{"bubble sleeps", "a_test.go", `package a

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(time.Hour) })
	time.Sleep(1)
}
`, []string{ruleSleep}},
		{"function of 60 lines", "a.go", "package a\n\nfunc f() {\n" + long(58) + "}\n", nil},
		{"function of 61 lines", "a.go", "package a\n\nfunc f() {\n" + long(59) + "}\n", []string{ruleFunction}},
		{"test's function", "a_test.go", "package a\n\nfunc f() {\n" + long(59) + "}\n", nil},
		{"file of 400 lines", "a.go", "package a\n" + strings.Repeat("//\n", 398) + "//", nil},
		{"file of 401 lines", "a.go", "package a\n" + strings.Repeat("//\n", 399) + "//", []string{ruleFile}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range findings(t, c.file, c.content) {
				got = append(got, f.Rule)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("broken rules %v, want %v", got, c.want)
			}
		})
	}
}

func TestExceptions(t *testing.T) {
	found := []Finding{
		{Rule: ruleClock, File: "a/a.go", Line: 1},
		{Rule: ruleClock, File: "b/b.go", Line: 2},
		{Rule: ruleFunction, File: "b/b.go", Func: "long", Line: 3},
		{Rule: ruleFunction, File: "b/b.go", Func: "longer", Line: 4},
	}
	list, err := parseExceptions(`
# a comment
clock    a/          it owns the clock
function b/b.go:long one switch
file     c.go        gone
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list.filter(found) {
		got = append(got, f.String())
	}
	want := []string{
		"b/b.go:2:  (clock)",
		"b/b.go:4:  (function)",
		"tests/lint/allow.txt:5: c.go needs no exception any more (file)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("left over:\n%q, want:\n%q", got, want)
	}
}

func TestExceptionsNeedAReason(t *testing.T) {
	for _, line := range []string{"clock a.go", "colour a.go it is blue"} {
		if _, err := parseExceptions(line); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
}
