package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// finder collects the mutants of one package.
type finder struct {
	pkg  *pkg
	file *file
	fn   string
	// signature is the function's; nil outside of one.
	signature *types.Signature
	// stack leads from the declaration to the present node.
	stack   []ast.Node
	mutants []*mutant
	// imports are what the next mutant's text needs.
	imports map[string]string
}

// find lists the mutants of a package, in no order.
func find(p *pkg) []*mutant {
	f := &finder{pkg: p}
	for _, one := range p.files {
		f.file = one
		for _, decl := range one.syntax.Decls {
			f.declaration(decl)
		}
	}
	return f.mutants
}

func (f *finder) declaration(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Body == nil || describes(decl.Name.Name) {
			return
		}
		f.fn = decl.Name.Name
		if decl.Recv != nil && len(decl.Recv.List) == 1 {
			f.fn = receiver(decl.Recv.List[0].Type) + "." + f.fn
		}
		f.signature = f.pkg.info.Defs[decl.Name].Type().(*types.Signature)
		f.walk(decl.Body)
	case *ast.GenDecl:
		if decl.Tok != token.VAR {
			return
		}
		f.signature = nil
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok && spec.Names[0].Name != "_" {
				f.fn = spec.Names[0].Name
				f.walk(spec)
			}
		}
	}
}

// describes reports whether a function makes text for people. Tests that held such
// texts to the letter would only be in the way.
func describes(name string) bool {
	switch name {
	case "String", "GoString", "Error", "Describe", "init":
		return true
	}
	return false
}

func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return "?"
}

func (f *finder) walk(root ast.Node) {
	f.stack = nil
	ast.Inspect(root, func(node ast.Node) bool {
		if node == nil {
			f.stack = f.stack[:len(f.stack)-1]
			return true
		}
		if !f.enters(node) {
			return false
		}
		f.visit(node)
		f.stack = append(f.stack, node)
		return true
	})
}

// parent is the n-th node around the present one, from 1.
func (f *finder) parent(n int) ast.Node {
	if n > len(f.stack) {
		return nil
	}
	return f.stack[len(f.stack)-n]
}

// enters leaves out what makes text for people, and what must stay constant.
func (f *finder) enters(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.ExprStmt:
		call, ok := node.X.(*ast.CallExpr)
		return !ok || !f.speaks(call)
	case *ast.CallExpr:
		return !f.speaks(node)
	case *ast.GenDecl:
		return node.Tok == token.VAR
	case *ast.ArrayType, *ast.FieldList, *ast.FuncType:
		return false
	}
	return true
}

// speaks reports whether a call writes or makes a message: a log line, an error's text,
// a panic's.
func (f *finder) speaks(call *ast.CallExpr) bool {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		_, builtin := f.pkg.info.Uses[fun].(*types.Builtin)
		return builtin && fun.Name == "panic"
	case *ast.SelectorExpr:
		object := f.pkg.info.Uses[fun.Sel]
		if object == nil || object.Pkg() == nil {
			return false
		}
		switch path := object.Pkg().Path(); path {
		case "log", "log/slog", "k8s.io/klog/v2", "istio.io/pkg/log", "github.com/go-logr/logr":
			return object.Name() != "New" && !strings.HasPrefix(object.Name(), "Set")
		case "fmt":
			return true
		case "errors":
			return object.Name() == "New"
		}
	}
	return false
}

// typeOf is the type that an expression has where it stands.
func (f *finder) typeOf(expr ast.Expr) types.Type { return f.pkg.info.TypeOf(expr) }

// constantOf is the value of a constant expression, nil for any other.
func (f *finder) constantOf(expr ast.Expr) constant.Value { return f.pkg.info.Types[expr].Value }

// zero reports whether an expression is the literal nothing of its type.
func (f *finder) zero(expr ast.Expr) bool {
	tv := f.pkg.info.Types[expr]
	switch {
	case tv.IsNil():
		return true
	case tv.Value == nil:
		literal, ok := expr.(*ast.CompositeLit)
		if !ok || len(literal.Elts) > 0 {
			return false
		}
		_, isStruct := tv.Type.Underlying().(*types.Struct)
		return isStruct
	case tv.Value.Kind() == constant.Bool:
		return !constant.BoolVal(tv.Value)
	case tv.Value.Kind() == constant.String:
		return constant.StringVal(tv.Value) == ""
	}
	return constant.Sign(tv.Value) == 0
}

// named writes a type as the present file can. It is "" for a type that it cannot name.
func (f *finder) named(t types.Type) string {
	if t == nil {
		return ""
	}
	if tuple, ok := t.(*types.Tuple); ok {
		return f.namedAll(tuple)
	}
	imports, ok := map[string]string{}, true
	text := types.TypeString(types.Default(t), func(other *types.Package) string {
		if other == f.pkg.types {
			return ""
		}
		if strings.Contains(other.Path(), "internal") && !f.pkg.imports(other) {
			ok = false
		}
		name := fmt.Sprintf("mutant_%s", strings.Map(identifier, other.Path()))
		imports[name] = other.Path()
		return name
	})
	if !ok || strings.Contains(text, "untyped") {
		return ""
	}
	if f.imports == nil {
		f.imports = map[string]string{}
	}
	for name, path := range imports {
		f.imports[name] = path
	}
	return text
}

// namedAll writes the results of a call, without their names, which could hide others.
func (f *finder) namedAll(tuple *types.Tuple) string {
	names := make([]string, 0, tuple.Len())
	for result := range tuple.Variables() {
		name := f.named(result.Type())
		if name == "" {
			f.imports = nil
			return ""
		}
		names = append(names, name)
	}
	return "(" + strings.Join(names, ", ") + ")"
}

func (p *pkg) imports(other *types.Package) bool {
	for _, imported := range p.types.Imports() {
		if imported == other {
			return true
		}
	}
	return false
}

func identifier(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// text is a node's source.
func (f *finder) text(node ast.Node) string { return f.file.source(node.Pos(), node.End()) }

func isBool(t types.Type) bool {
	basic, ok := t.(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

func isOrdered(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsOrdered != 0
}

func isDuration(t types.Type) bool { return isNamed(t, "time", "Duration") }

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }
