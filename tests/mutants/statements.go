package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// largestLiteral is up to how many elements of a list are left out in turn.
const largestLiteral = 24

// statement leaves out one statement of a block.
func (f *finder) statement(stmt ast.Stmt) {
	if !f.inBlock(stmt) {
		return
	}
	op := ""
	switch stmt := stmt.(type) {
	case *ast.AssignStmt:
		if stmt.Tok == token.DEFINE || discards(stmt) {
			return
		}
		op = "assignment removed"
	case *ast.IncDecStmt:
		op = "count removed"
	case *ast.ExprStmt:
		op = "call removed"
	case *ast.DeferStmt:
		op = "defer removed"
	case *ast.GoStmt:
		op = "go removed"
	case *ast.SendStmt:
		op = "send removed"
	case *ast.BranchStmt:
		if stmt.Tok == token.FALLTHROUGH || stmt.Tok == token.GOTO || f.alone() {
			return
		}
		op = stmt.Tok.String() + " removed"
	case *ast.ReturnStmt:
		if len(stmt.Results) > 0 || f.alone() || f.last(stmt) {
			return
		}
		op = "return removed"
	default:
		return
	}
	f.add(op, stmt.Pos(), stmt.End(), f.text(stmt), "if !"+mutantIsOn+" { ", " }")
}

// inBlock reports whether a statement can be put into braces where it stands.
func (f *finder) inBlock(stmt ast.Stmt) bool {
	switch parent := f.parent(1).(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != stmt
	}
	return false
}

// alone reports whether the block holds one statement only, under an if: then leaving
// it out is the same as a condition that is never true.
func (f *finder) alone() bool {
	block, ok := f.parent(1).(*ast.BlockStmt)
	if !ok || len(block.List) != 1 {
		return false
	}
	branch, ok := f.parent(2).(*ast.IfStmt)
	return ok && branch.Body == block
}

// last reports whether a return is the end of its function anyway.
func (f *finder) last(stmt ast.Stmt) bool {
	block, ok := f.parent(1).(*ast.BlockStmt)
	if !ok || block.List[len(block.List)-1] != stmt {
		return false
	}
	_, literal := f.parent(2).(*ast.FuncLit)
	return literal || len(f.stack) == 1
}

// discards reports whether everything is assigned to nothing.
func discards(stmt *ast.AssignStmt) bool {
	for _, left := range stmt.Lhs {
		if name, ok := left.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

// returned drops the error of a return, and changes the truths and spans it gives.
func (f *finder) returned(stmt *ast.ReturnStmt) {
	if len(stmt.Results) == 0 {
		return
	}
	f.values(stmt.Results)
	last := stmt.Results[len(stmt.Results)-1]
	t := f.typeOf(last)
	if tuple, ok := t.(*types.Tuple); ok {
		f.dropsLast(last, tuple)
		return
	}
	result := f.resultType()
	if result != nil && isError(result) && !f.zero(last) {
		f.wrap("error dropped", "mutantZero", result, last)
	}
}

// resultType is the type of the last result of the function around the present node.
func (f *finder) resultType() types.Type {
	for i := 1; f.parent(i) != nil; i++ {
		if literal, ok := f.parent(i).(*ast.FuncLit); ok {
			signature := f.typeOf(literal).(*types.Signature)
			return signature.Results().At(signature.Results().Len() - 1).Type()
		}
	}
	if f.signature == nil || f.signature.Results().Len() == 0 {
		return nil
	}
	return f.signature.Results().At(f.signature.Results().Len() - 1).Type()
}

// dropsLast is for "return f()" with several results of which the last is an error.
func (f *finder) dropsLast(call ast.Expr, tuple *types.Tuple) {
	n := tuple.Len()
	if n < 2 || !isError(tuple.At(n-1).Type()) {
		return
	}
	names := make([]string, n-1)
	for i := range names {
		names[i] = fmt.Sprintf("mutant%d", i)
	}
	results := f.namedAll(tuple)
	if results == "" {
		return
	}
	kept := strings.Join(names, ", ")
	f.add("error dropped", call.Pos(), call.End(), f.text(call), fmt.Sprintf(
		"func() %s { if %s { %s, _ := %s; return %s, nil }; return ",
		results, mutantIsOn, kept, f.text(call), kept), " }()")
}

// cases takes cases out of a switch: their values then run into the default.
func (f *finder) cases(tagged bool, body *ast.BlockStmt) {
	otherwise := ""
	for _, stmt := range body.List {
		if clause := stmt.(*ast.CaseClause); clause.List == nil && len(clause.Body) > 0 {
			otherwise = f.file.source(clause.Body[0].Pos(), clause.Body[len(clause.Body)-1].End())
		}
	}
	for _, stmt := range body.List {
		clause := stmt.(*ast.CaseClause)
		switch {
		case clause.List != nil && !tagged:
			for _, cond := range clause.List {
				f.never("case removed", cond)
			}
		case clause.List != nil:
			f.clause(clause, otherwise)
		}
	}
}

func (f *finder) clause(clause *ast.CaseClause, otherwise string) {
	what := f.file.source(clause.Pos(), clause.Colon)
	if len(clause.Body) == 0 {
		if otherwise != "" {
			f.add("case removed", clause.Colon+1, clause.Colon+1, what, " if "+mutantIsOn+" { "+otherwise+" };", "")
		}
		return
	}
	last := clause.Body[len(clause.Body)-1]
	if branch, ok := last.(*ast.BranchStmt); ok && branch.Tok == token.FALLTHROUGH {
		return
	}
	before := " if !" + mutantIsOn + " { "
	if otherwise != "" {
		before = " if " + mutantIsOn + " { " + otherwise + " } else { "
	}
	f.add("case removed", clause.Body[0].Pos(), last.End(), what, before, " }")
}

// literal leaves out the fields of a struct, the elements of a list, the keys of a map.
func (f *finder) literal(literal *ast.CompositeLit) {
	t := f.typeOf(literal)
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		t = pointer.Elem() // the elements of a list of pointers, written without their type
	}
	switch under := t.Underlying().(type) {
	case *types.Struct:
		f.fields(literal, under)
	case *types.Slice, *types.Map:
		f.elements(literal)
	}
}

func (f *finder) fields(literal *ast.CompositeLit, of *types.Struct) {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		f.value(pair.Value, true)
		name := pair.Key.(*ast.Ident).Name
		for field := range of.Fields() {
			if field.Name() != name || f.zero(pair.Value) {
				continue
			}
			if t := f.named(field.Type()); t != "" {
				f.add("field removed", pair.Value.Pos(), pair.Value.End(), f.text(pair),
					fmt.Sprintf("mutantZero[%s](%s, ", t, idMark), ")")
			}
		}
	}
}

// elements needs the literal anew without each element; so it is for short lists.
func (f *finder) elements(literal *ast.CompositeLit) {
	if len(literal.Elts) > largestLiteral || literal.Type == nil {
		return
	}
	if unary, ok := f.parent(1).(*ast.UnaryExpr); ok && unary.Op == token.AND {
		return
	}
	for i, element := range literal.Elts {
		rest := make([]string, 0, len(literal.Elts))
		for j, other := range literal.Elts {
			if j != i {
				rest = append(rest, f.text(other))
			}
		}
		f.instead("element removed", literal, f.text(element),
			f.text(literal.Type)+"{"+strings.Join(rest, ", ")+"}")
	}
}
