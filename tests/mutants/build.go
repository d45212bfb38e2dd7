package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// suite is the compiled tests of one package.
type suite struct {
	judge
	dir, binary string
	// tests are the names of its tests and examples that the judge allows.
	tests []string
}

// planted is a room whose mutants are compiled into the tests that judge them.
type planted struct {
	room    room
	root    string
	work    string
	mutants []*mutant
	suites  []*suite
	overlay string
	// sum tells one build from another.
	sum string
	// clusters are those that stay up.
	clusters sharedClusters
	// elsewhere are the functions of the room's packages that other rooms have.
	elsewhere map[string]bool
}

// plant finds the mutants of a room and compiles its tests with them.
func plant(ctx context.Context, root, work string, r room) (*planted, error) {
	root = filepath.Join(root, r.module)
	p := &planted{room: r, root: root, work: filepath.Join(work, r.name), elsewhere: map[string]bool{}}
	if err := os.RemoveAll(filepath.Join(p.work, "src")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(p.work, "src"), 0o755); err != nil {
		return nil, err
	}
	packages, c, err := load(root, r.packages)
	if err != nil {
		return nil, err
	}
	for _, one := range packages {
		for _, m := range find(one) {
			if r.includes(filepath.Base(m.file.path)) {
				p.mutants = append(p.mutants, m)
			} else {
				p.elsewhere[m.place()] = true
			}
		}
	}
	inOrder(p.mutants)
	number(p.mutants)
	if err := p.write(c, packages); err != nil {
		return nil, err
	}
	return p, p.compile(ctx)
}

// write puts the changed files into the work folder, with the overlay that names them.
func (p *planted) write(c checker, packages []*pkg) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(original, text string) error {
		name := filepath.Join(p.work, "src", fmt.Sprintf("%03d_%s", len(overlay.Replace), filepath.Base(original)))
		overlay.Replace[original] = name
		return os.WriteFile(name, []byte(text), 0o644)
	}
	total := len(p.mutants)
	for _, one := range packages {
		var here []*mutant
		for _, m := range p.mutants {
			if m.pkg == one {
				here = append(here, m)
			}
		}
		texts, err := drop(c, one, here, total)
		if err != nil {
			return err
		}
		for _, f := range one.files {
			if text, changed := texts[f.path]; changed {
				if err := put(f.path, text); err != nil {
					return err
				}
			}
		}
		if err := put(filepath.Join(one.dir, "zz_mutants.go"), switchText(one.name, total)); err != nil {
			return err
		}
	}
	kept := p.mutants[:0]
	for _, m := range p.mutants {
		if !m.dropped {
			kept = append(kept, m)
		}
	}
	p.mutants = kept
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	p.overlay = filepath.Join(p.work, "overlay.json")
	return os.WriteFile(p.overlay, text, 0o644)
}

// compile builds the test programs.
func (p *planted) compile(ctx context.Context) error {
	sum := sha256.New()
	for i, j := range p.room.judges {
		found, err := list(p.root, j.pkg)
		if err != nil {
			return err
		}
		s := &suite{judge: j, dir: found[0].Dir, binary: filepath.Join(p.work, fmt.Sprintf("%d.test", i))}
		if s.tests, err = testsOf(found[0], j); err != nil {
			return err
		}
		if len(s.tests) == 0 {
			return fmt.Errorf("%s: no test of %s is to judge it", p.room.name, j.pkg)
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+p.overlay, "-o", s.binary, j.pkg)
		cmd.Dir = p.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the tests of %s: %w\n%s", j.pkg, err, out)
		}
		binary, err := os.ReadFile(s.binary)
		if err != nil {
			return err
		}
		sum.Write(binary)
		fmt.Fprintln(sum, s.tests, j.env, j.cluster)
		p.suites = append(p.suites, s)
	}
	p.sum = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// testsOf lists the tests of a package by its source: asking the compiled program would
// start what its TestMain starts.
func testsOf(p listed, j judge) ([]string, error) {
	var tests []string
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv == nil && isTest(fn.Name.Name, bytes.Contains(text, []byte("// Output:"))) && j.allows(fn.Name.Name) {
				tests = append(tests, fn.Name.Name)
			}
		}
	}
	return tests, nil
}

func isTest(name string, output bool) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || name == "TestMain" || prefix == "Example" && !output {
			continue
		}
		first, _ := utf8.DecodeRuneInString(rest)
		return rest == "" || !unicode.IsLower(first)
	}
	return false
}
