package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is one package to plant faults in, parsed and type-checked.
type pkg struct {
	path, dir, name string
	files           []*file
	types           *types.Package
	info            *types.Info
}

// file is one source file of a package.
type file struct {
	path   string
	text   []byte
	syntax *ast.File
	tokens *token.File
}

// offset is where a position lies in the file's text.
func (f *file) offset(pos token.Pos) int { return f.tokens.Offset(pos) }

// source is the text of a node.
func (f *file) source(from, to token.Pos) string {
	return string(f.text[f.offset(from):f.offset(to)])
}

// listed is what the go command says about a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
	TestGoFiles, XTestGoFiles     []string
	DepOnly                       bool
	Error                         *struct{ Err string }
}

// list asks the go command about packages.
func list(root string, args ...string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Name,Export,GoFiles,TestGoFiles,XTestGoFiles,DepOnly,Error"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one listed
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
		}
		if one.Error != nil {
			return nil, fmt.Errorf("go list %s: %s", one.ImportPath, one.Error.Err)
		}
		all = append(all, one)
	}
}

// checker type-checks packages against the compiled form of what they import.
type checker struct {
	fset    *token.FileSet
	exports map[string]string
}

// importer is made anew for each package: it keeps what it has read.
func (c checker) importer() types.Importer {
	return importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := c.exports[path]
		if !ok || name == "" {
			return nil, fmt.Errorf("no compiled form of %s", path)
		}
		return os.Open(name)
	})
}

// load parses and type-checks the packages that the patterns name.
func load(root string, patterns []string) ([]*pkg, checker, error) {
	c := checker{fset: token.NewFileSet(), exports: map[string]string{}}
	all, err := list(root, append([]string{"-export", "-deps"}, patterns...)...)
	if err != nil {
		return nil, c, err
	}
	// What the added text needs beside that.
	more, err := list(root, "-export", "-deps", "os", "strconv", "sync/atomic")
	if err != nil {
		return nil, c, err
	}
	for _, one := range append(more, all...) {
		c.exports[one.ImportPath] = one.Export
	}
	var packages []*pkg
	for _, one := range all {
		if one.DepOnly {
			continue
		}
		p := &pkg{path: one.ImportPath, dir: one.Dir, name: one.Name}
		for _, name := range one.GoFiles {
			f, err := parse(c.fset, filepath.Join(one.Dir, name))
			if err != nil {
				return nil, c, err
			}
			p.files = append(p.files, f)
		}
		if err := p.check(c); err != nil {
			return nil, c, fmt.Errorf("type-checking %s: %w", p.path, err)
		}
		packages = append(packages, p)
	}
	return packages, c, nil
}

func parse(fset *token.FileSet, path string) (*file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{path: path, text: text, syntax: syntax, tokens: fset.File(syntax.Pos())}, nil
}

func (p *pkg) check(c checker) error {
	p.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{},
	}
	syntax := make([]*ast.File, 0, len(p.files))
	for _, f := range p.files {
		syntax = append(syntax, f.syntax)
	}
	var err error
	config := types.Config{Importer: c.importer()}
	p.types, err = config.Check(p.path, c.fset, syntax, p.info)
	return err
}
