package main

import (
	"slices"
	"testing"
	"testing/fstest"

	"incumbent.dev/incumbent/internal/testutil/source"
)

func TestCheck(t *testing.T) {
	const message = ": a test must wait for a condition instead of sleeping"
	for name, c := range map[string]struct {
		file, content string
		want          []string
	}{
		"a test":               {"a_test.go", "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{"a_test.go:5" + message}},
		"by another name":      {"a_test.go", "package a\n\nimport x \"time\"\n\nvar f = x.Sleep\n", []string{"a_test.go:5" + message}},
		"a test that does not": {"a_test.go", "package a\n\nimport \"time\"\n\nvar t = time.Now()\n", nil},
		"no test":              {"a.go", "package a\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", nil},
		"a bubble, and after it": {"a_test.go", `package a

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(time.Hour) })
	time.Sleep(1)
}
`, []string{"a_test.go:11" + message}},
	} {
		m, err := source.Load(fstest.MapFS{"go.mod": {Data: []byte("module example.dev/house\n")}, c.file: {Data: []byte(c.content)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := check(m); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCheckNames(t *testing.T) {
	fsys := fstest.MapFS{"x/a/a_test.go": {Data: []byte("package a\n\nfunc TestOne(t *testing.T) {\n}\n\nfunc BenchmarkTwo(b *testing.B) {\n}\n")}}
	const lines = "\tgo test -run 'One|Three' -timeout 1m ./x/a\n\tcd x && go test -run '^$$' -bench . ./a && \\\n\tgo test -bench Two ./a && go test -run One .\n"
	want := []string{
		"Makefile: Three matches no function: go test -run 'One|Three' -timeout 1m ./x/a",
		"Makefile: One matches no function: go test -run One .",
	}
	if got := checkNames(fsys, lines); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
