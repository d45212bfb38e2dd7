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

// Module is the syntax of one module.
type Module struct {
	// Path is the module's import path, as go.mod gives it.
	Path  string
	Files []*File
	fset  *token.FileSet
}

// File is one parsed Go file.
type File struct {
	// Name is the path inside the module, with slashes.
	Name string
	// Lines is the length of the file.
	Lines  int
	Syntax *ast.File
	module *Module
}

// Load parses the module whose go.mod lies at the root of fsys.
func Load(fsys fs.FS) (*Module, error) {
	gomod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, fmt.Errorf("reading the module's go.mod: %w", err)
	}
	m := &Module{Path: modulePath(string(gomod)), fset: token.NewFileSet()}
	if m.Path == "" {
		return nil, fmt.Errorf("go.mod names no module")
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

// enter decides whether a folder belongs to the module.
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

// Test reports whether the file is compiled for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Package is the folder of the file inside the module.
func (f *File) Package() string { return path.Dir(f.Name) }

// Line is the line of a position in the file.
func (f *File) Line(pos token.Pos) int { return f.module.fset.Position(pos).Line }

// Import is one import of a file.
type Import struct {
	// Path is the import path; Local the path inside the module, "" for a package
	// of another one.
	Path, Local string
	// Name is how the file calls the package.
	Name string
	Line int
}

// Imports lists what the file imports.
func (f *File) Imports() []Import {
	imports := make([]Import, 0, len(f.Syntax.Imports))
	for _, spec := range f.Syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it, so it is a string
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

// Use is one mention of another package's name.
type Use struct {
	// Name is the mention with the package's import path: "time.Now".
	Name string
	Line int
	Node *ast.SelectorExpr
}

// Uses lists where the file mentions any of the names, each given with the
// import path of its package, as in "time.Now". A package imported under another
// name is recognized.
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
