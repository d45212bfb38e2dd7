package imports

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"incumbent.dev/incumbent/internal/testutil/source"
)

// undocumented returns the packages without a doc.go that describes them.
func undocumented(m *source.Module) []Violation {
	packages := map[string]*source.File{}
	for _, file := range m.Files {
		pkg := file.Package()
		if path.Base(file.Name) == "doc.go" {
			packages[pkg] = file
		} else if _, ok := packages[pkg]; !ok {
			packages[pkg] = nil
		}
	}
	var found []Violation
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		doc := packages[pkg]
		switch {
		case doc == nil:
			found = append(found, Violation{pkg, 0, "this package has no doc.go"})
		case !says(doc.Syntax):
			found = append(found, Violation{doc.Name, 1, "the comment must begin with Package or Command and the name"})
		}
	}
	return found
}

func says(doc *ast.File) bool {
	text := doc.Doc.Text()
	if doc.Name.Name == "main" {
		return strings.HasPrefix(text, "Command ")
	}
	return strings.HasPrefix(text, "Package "+doc.Name.Name+" ")
}

// unexplained returns the exported names without a comment in the packages that other modules can import: functions, methods, types,
// constants, variables, fields and the methods of interfaces.
func unexplained(m *source.Module) (found []Violation) {
	for _, file := range m.Files {
		words := strings.Split(file.Name, "/")
		if file.Test() || file.Syntax.Name.Name == "main" || words[0] == "tests" || slices.Contains(words, "internal") {
			continue
		}
		n := names{file: file}
		for _, decl := range file.Syntax.Decls {
			n.declaration(decl)
		}
		found = append(found, n.found...)
	}
	return found
}

// names finds the exported names of a file without a comment.
type names struct {
	file  *source.File
	above string // the last comment of the declaration
	found []Violation
}

// need reports the exported names without a comment. The last comment above counts if it contains the name.
func (n *names) need(owner string, idents []*ast.Ident, comments ...*ast.CommentGroup) {
	for _, comment := range comments {
		if text := comment.Text(); text != "" {
			n.above = text
			return
		}
	}
	words := strings.FieldsFunc(n.above, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for _, ident := range idents {
		if ident.IsExported() && !slices.Contains(words, ident.Name) {
			n.found = append(n.found, Violation{n.file.Name, n.file.Line(ident.Pos()), fmt.Sprintf("%s%s has no comment", owner, ident.Name)})
		}
	}
}

func (n *names) declaration(decl ast.Decl) {
	n.above = ""
	switch d := decl.(type) {
	case *ast.FuncDecl:
		owner := receiver(d)
		if owner == "" || ast.IsExported(owner) {
			n.need(strings.TrimPrefix(owner+".", "."), []*ast.Ident{d.Name}, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				group := d.Doc
				if d.Lparen.IsValid() && d.Tok == token.VAR {
					group = nil // it describes the group
				}
				n.need("", s.Names, s.Doc, s.Comment, group)
			case *ast.TypeSpec:
				n.need("", []*ast.Ident{s.Name}, s.Doc, s.Comment, d.Doc)
				if s.Name.IsExported() {
					n.members(s.Name.Name+".", s.Type)
				}
			}
		}
	}
}

// members checks the fields of a struct and the methods of an interface. An embedded type has its own comment.
func (n *names) members(owner string, of ast.Expr) {
	var list *ast.FieldList
	switch t := of.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, field := range list.List {
		n.need(owner, field.Names, field.Doc, field.Comment)
		for _, name := range field.Names {
			if name.IsExported() {
				n.members(owner+name.Name+".", field.Type)
			}
		}
	}
}

// receiver returns the name of the type of a method, or "".
func receiver(f *ast.FuncDecl) (name string) {
	if f.Recv != nil {
		ast.Inspect(f.Recv.List[0].Type, func(node ast.Node) bool {
			ident, ok := node.(*ast.Ident)
			if ok && name == "" {
				name = ident.Name
			}
			return true
		})
	}
	return name
}
