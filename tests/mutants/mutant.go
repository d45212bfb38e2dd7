package main

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// mutant is one fault: text put around a piece of a file, so that the program behaves
// as before unless this mutant is the chosen one.
type mutant struct {
	// id is the number by which the environment chooses it; 0 chooses none.
	id   int
	pkg  *pkg
	file *file
	// fn names the function, with its receiver, or the package-level variable.
	fn string
	// op says what is done, of what was there: "boundary", "a < b".
	op, what string
	// from and to is the piece, before and after are put around it. idMark in them
	// stands for the mutant's number.
	from, to      int
	before, after string
	// imports are the packages that the added text needs, by the names it uses.
	imports map[string]string
	// nth tells mutants of a function apart that read the same; from 1.
	nth int
	// dropped mutants do not compile.
	dropped bool
}

// idMark is no text of a Go file.
const idMark = "\x00"

// longestWhat is how much of the original text a key holds.
const longestWhat = 110

// key names a mutant as long as the function and the mutated text stay what they are,
// wherever in the file they move.
func (m *mutant) key() string {
	key := fmt.Sprintf("%s: %s: %s", m.place(), m.op, m.what)
	if m.nth > 1 {
		key += fmt.Sprintf(" (#%d)", m.nth)
	}
	return key
}

// place is what the keys of all mutants of a function begin with.
func (m *mutant) place() string { return shortPath(m.pkg.path) + " " + m.fn }

// position is for a reader who wants to look.
func (m *mutant) position() string {
	at := m.file.tokens.Position(m.file.tokens.Pos(m.from))
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}

// shortPath is a package's path without what all paths of a module begin with.
func shortPath(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// oneLine is source text as it stands in a key.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longestWhat {
		text = text[:longestWhat] + "…"
	}
	return text
}

// number gives the mutants of a room their numbers, in the order of the source.
func number(mutants []*mutant) {
	seen := map[string]int{}
	for i, m := range mutants {
		m.id, m.nth = i+1, 0
		key := m.key()
		seen[key]++
		m.nth = seen[key]
	}
}

// inOrder sorts as text is put in: what encloses comes before what is enclosed.
func inOrder(mutants []*mutant) {
	slices.SortStableFunc(mutants, func(a, b *mutant) int {
		return cmp.Or(
			cmp.Compare(a.pkg.path, b.pkg.path), cmp.Compare(a.file.path, b.file.path),
			cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to),
		)
	})
}

// add notes a mutant of the piece between two positions.
func (f *finder) add(op string, from, to token.Pos, what, before, after string) {
	f.mutants = append(f.mutants, &mutant{
		pkg: f.pkg, file: f.file, fn: f.fn, op: op, what: oneLine(what),
		from: f.file.offset(from), to: f.file.offset(to), before: before, after: after,
		imports: f.imports,
	})
	f.imports = nil
}
