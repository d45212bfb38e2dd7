package source

import (
	"slices"
	"testing"
	"testing/fstest"
)

func load(t *testing.T, files map[string]string) *Module {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module example.dev/house\n\ngo 1.26\n")}}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	m, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLoad_SkipsOtherFiles(t *testing.T) {
	m := load(t, map[string]string{
		"a/a.go":          "package a\n",
		"a/testdata/b.go": "not Go",
		".hidden/c.go":    "package c\n",
		"nested/go.mod":   "module example.dev/other\n",
		"nested/d/d.go":   "package d\n",
		"a/notes.txt":     "also not Go",
	})
	var names []string
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	if want := []string{"a/a.go"}; !slices.Equal(names, want) {
		t.Errorf("loaded %v, want %v", names, want)
	}
}

func TestUses_RenamedImport(t *testing.T) {
	m := load(t, map[string]string{"a/a.go": `package a

import clock "time"

type t struct{}

func (t) Now() {}

var time t

func f() {
	time.Now()
	_ = clock.Now
}
`})
	uses := m.Files[0].Uses("time.Now")
	if len(uses) != 1 || uses[0].Line != 13 || uses[0].Name != "time.Now" {
		t.Errorf("uses %+v, want one of time.Now in line 13", uses)
	}
}
