package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is a parsed module.
type Module struct {
	// Path is the import path in go.mod.
	Path  string
	Files []*File
	fset  *token.FileSet
}

// File is one parsed Go file.
type File struct {
	// Name is the slash-separated path in the module.
	Name string
	// Lines is the number of lines.
	Lines  int
	Syntax *ast.File
	module *Module
}

// Load parses the module with go.mod at the root of fsys.
func Load(fsys fs.FS) (*Module, error) {
	gomod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, fmt.Errorf("read go.mod: %w", err)
	}
	m := &Module{Path: modulePath(string(gomod)), fset: token.NewFileSet()}
	if m.Path == "" {
		return nil, fmt.Errorf("go.mod has no module")
	}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return m.enter(fsys, name)
		case path.Ext(name) == ".go":
			return m.parse(fsys, name)
		}
		return nil
	})
	return m, err
}

// enter skips folders that do not belong to the module.
func (m *Module) enter(fsys fs.FS, name string) error {
	base := path.Base(name)
	if name == "." {
		return nil
	}
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func (m *Module) parse(fsys fs.FS, name string) error {
	content, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(m.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	m.Files = append(m.Files, &File{
		Name:   name,
		Lines:  m.fset.File(syntax.Pos()).LineCount(),
		Syntax: syntax,
		module: m,
	})
	return nil
}

func modulePath(gomod string) string {
	for line := range strings.Lines(gomod) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// Test reports whether the file is a test file.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Package returns the folder of the file in the module.
func (f *File) Package() string { return path.Dir(f.Name) }

// Line returns the line of a position.
func (f *File) Line(pos token.Pos) int { return f.module.fset.Position(pos).Line }

// Import is one import of a file.
type Import struct {
	// Path is the import path. Local is the path in the module, or "".
	Path, Local string
	// Name is the name of the package in the file.
	Name string
	Line int
}

// Imports returns the imports of the file.
func (f *File) Imports() []Import {
	imports := make([]Import, 0, len(f.Syntax.Imports))
	for _, spec := range f.Syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepted it, so it is a string
		}
		imp := Import{Path: importPath, Name: path.Base(importPath), Line: f.Line(spec.Pos())}
		imp.Local, _ = strings.CutPrefix(importPath, f.module.Path+"/")
		if imp.Local == importPath {
			imp.Local = ""
		}
		if spec.Name != nil {
			imp.Name = spec.Name.Name
		}
		imports = append(imports, imp)
	}
	return imports
}

// Use is a use of a name of another package.
type Use struct {
	// Name contains the import path: "time.Now".
	Name string
	Line int
	Node *ast.SelectorExpr
}

// Uses returns the uses of the names, each with the import path of its package: "time.Now". It resolves renamed
// imports.
func (f *File) Uses(names ...string) []Use {
	packages := map[string]string{}
	for _, imp := range f.Imports() {
		packages[imp.Name] = imp.Path
	}
	var uses []Use
	ast.Inspect(f.Syntax, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		ident, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		name := packages[ident.Name] + "." + selector.Sel.Name
		if slices.Contains(names, name) {
			uses = append(uses, Use{Name: name, Line: f.Line(selector.Pos()), Node: selector})
		}
		return true
	})
	return uses
}
