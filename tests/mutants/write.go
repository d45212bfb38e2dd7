package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Environment variables of the compiled tests.
const (
	// envMutant is the number of the mutant that is active.
	envMutant = "INCUMBENT_MUTANT"
	// envReached is a file that the numbers of the mutants are appended to whose place
	// in the program was reached.
	envReached = "INCUMBENT_MUTANTS_REACHED"
)

// switchFile is added to each package that has mutants.
const switchFile = `package %s

import (
	mutantOS "os"
	mutantNumber "strconv"
	mutantAtomic "sync/atomic"
)

var mutantActive = func() int {
	n, _ := mutantNumber.Atoi(mutantOS.Getenv(%q))
	return n
}()

var mutantReached = func() *mutantOS.File {
	name := mutantOS.Getenv(%q)
	if name == "" {
		return nil
	}
	file, err := mutantOS.OpenFile(name, mutantOS.O_APPEND|mutantOS.O_CREATE|mutantOS.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	return file
}()

var mutantSeen [%d]mutantAtomic.Bool

// mutantOn reports whether the mutant is the chosen one.
func mutantOn(id int) bool {
	if mutantReached != nil && mutantSeen[id].CompareAndSwap(false, true) {
		mutantReached.WriteString(mutantNumber.Itoa(id) + "\n")
	}
	return id == mutantActive
}

// mutantZero is v, or nothing when the mutant is on.
func mutantZero[T any](id int, v T) T {
	if mutantOn(id) {
		var zero T
		return zero
	}
	return v
}

// mutantDouble is v, or twice that when the mutant is on.
func mutantDouble[T ~int64](id int, v T) T {
	if mutantOn(id) {
		return 2 * v
	}
	return v
}
`

// switchText is the file for a package of a room with so many mutants.
func switchText(name string, mutants int) string {
	return fmt.Sprintf(switchFile, name, envMutant, envReached, mutants+1)
}

// span is where the text of a mutant lies in a written file.
type span struct {
	mutant   *mutant
	from, to int
}

// write puts all mutants of a file into its text. They come in the order of inOrder.
func write(f *file, mutants []*mutant) (string, []span) {
	var (
		out  strings.Builder
		at   int
		open []int // indexes into spans
	)
	head := f.offset(f.syntax.Name.End())
	out.Write(f.text[:head])
	at = head
	imports := map[string]string{}
	for _, m := range mutants {
		maps.Copy(imports, m.imports)
	}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		fmt.Fprintf(&out, "; import %s %q", name, imports[name])
	}
	spans := make([]span, 0, len(mutants))
	closeUpTo := func(from int) {
		for len(open) > 0 {
			s := &spans[open[len(open)-1]]
			if s.mutant.to > from {
				return
			}
			out.Write(f.text[at:s.mutant.to])
			at = s.mutant.to
			out.WriteString(s.mutant.text(s.mutant.after))
			s.to = out.Len()
			open = open[:len(open)-1]
		}
	}
	for _, m := range mutants {
		closeUpTo(m.from)
		out.Write(f.text[at:m.from])
		at = m.from
		spans = append(spans, span{mutant: m, from: out.Len()})
		open = append(open, len(spans)-1)
		out.WriteString(m.text(m.before))
	}
	closeUpTo(len(f.text))
	out.Write(f.text[at:])
	return out.String(), spans
}

func (m *mutant) text(pattern string) string {
	return strings.ReplaceAll(pattern, idMark, strconv.Itoa(m.id))
}

// drop finds the mutants of a package that do not compile, and drops them. It gives
// the text of the files that are left with mutants.
func drop(c checker, p *pkg, mutants []*mutant, total int) (map[string]string, error) {
	for {
		texts, spans := map[string]string{}, map[string][]span{}
		for _, f := range p.files {
			var here []*mutant
			for _, m := range mutants {
				if m.file == f && !m.dropped {
					here = append(here, m)
				}
			}
			if len(here) > 0 {
				texts[f.path], spans[f.path] = write(f, here)
			}
		}
		failures, err := p.recheck(c, texts, switchText(p.name, total))
		if err != nil {
			return nil, err
		}
		if len(failures) == 0 {
			return texts, nil
		}
		if err := blame(failures, spans); err != nil {
			return nil, err
		}
	}
}

// failure is one thing that the type checker does not like.
type failure struct {
	path   string
	offset int
	text   string
}

// recheck type-checks a package with some of its files replaced.
func (p *pkg) recheck(c checker, texts map[string]string, switches string) ([]failure, error) {
	var syntax []*ast.File
	add := func(path string, text any) error {
		parsed, err := parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("what was written does not parse: %w", err)
		}
		syntax = append(syntax, parsed)
		return nil
	}
	for _, f := range p.files {
		text, changed := texts[f.path]
		if !changed {
			text = string(f.text)
		}
		if err := add(f.path, text); err != nil {
			os.WriteFile(filepath.Join(os.TempDir(), "mutants-"+filepath.Base(f.path)), []byte(text), 0o644)
			return nil, err
		}
	}
	if err := add(filepath.Join(p.dir, "zz_mutants.go"), switches); err != nil {
		return nil, err
	}
	var failures []failure
	config := types.Config{Importer: c.importer(), Error: func(err error) {
		var wrong types.Error
		errors.As(err, &wrong)
		at := c.fset.Position(wrong.Pos)
		failures = append(failures, failure{path: at.Filename, offset: at.Offset, text: err.Error()})
	}}
	config.Check(p.path, c.fset, syntax, nil) // its error is the first of failures
	return failures, nil
}

// blame drops, for each failure, the innermost mutant around it.
func blame(failures []failure, spans map[string][]span) error {
	found := false
	var lost *failure
	for i, fail := range failures {
		var inner *mutant
		for _, s := range spans[fail.path] {
			if s.from <= fail.offset && fail.offset < s.to {
				inner = s.mutant // later ones lie inside earlier ones
			}
		}
		if inner == nil {
			lost = &failures[i]
			continue
		}
		inner.dropped, found = true, true
	}
	if !found && lost != nil {
		return fmt.Errorf("%s: no mutant is to blame for: %s", lost.path, lost.text)
	}
	return nil
}
