package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutantIsOn is the condition that chooses between what was there and the mutant.
const mutantIsOn = "mutantOn(" + idMark + ")"

// visit adds the mutants of one node.
func (f *finder) visit(node ast.Node) {
	switch node := node.(type) {
	case *ast.IfStmt:
		f.condition(node.Cond)
	case *ast.ForStmt:
		if node.Cond != nil {
			f.never("condition false", node.Cond)
		}
	case *ast.BinaryExpr:
		f.binary(node)
	case *ast.CallExpr:
		f.call(node)
	case *ast.ReturnStmt:
		f.returned(node)
	case *ast.AssignStmt:
		if len(node.Lhs) == len(node.Rhs) {
			f.values(node.Rhs)
		}
	case *ast.ValueSpec:
		f.values(node.Values)
	case *ast.CompositeLit:
		f.literal(node)
	case *ast.SwitchStmt:
		f.cases(node.Tag != nil, node.Body)
	case *ast.TypeSwitchStmt:
		f.cases(true, node.Body)
	case *ast.CommClause:
		f.channel(node)
	}
	if stmt, ok := node.(ast.Stmt); ok {
		f.statement(stmt)
	}
}

// condition makes a condition true, and false.
func (f *finder) condition(cond ast.Expr) {
	f.always("condition true", cond)
	f.never("condition false", cond)
}

// always leaves out a && b: who notices that a, or b, is taken for true notices that both
// are. For the same reason && is not changed into ||.
func (f *finder) always(op string, cond ast.Expr) {
	if f.constantOf(cond) == nil && !joins(cond, token.LAND) {
		f.add(op, cond.Pos(), cond.End(), f.text(cond), "("+mutantIsOn+" || (", "))")
	}
}

func (f *finder) never(op string, cond ast.Expr) {
	if f.constantOf(cond) == nil && !joins(cond, token.LOR) {
		f.add(op, cond.Pos(), cond.End(), f.text(cond), "(!"+mutantIsOn+" && (", "))")
	}
}

func joins(cond ast.Expr, op token.Token) bool {
	binary, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	return ok && binary.Op == op
}

// either is a condition with another one to take its place.
func (f *finder) either(op string, expr ast.Expr, what, other string) {
	f.add(op, expr.Pos(), expr.End(), what,
		fmt.Sprintf("(%s && (%s) || !%s && (", mutantIsOn, other, mutantIsOn), "))")
}

// instead is an expression with another one of the same type to take its place.
func (f *finder) instead(op string, expr ast.Expr, what, other string) {
	if name := f.named(f.typeOf(expr)); name != "" {
		f.add(op, expr.Pos(), expr.End(), what,
			fmt.Sprintf("func() %s { if %s { return %s }; return (", name, mutantIsOn, other), ") }()")
	}
}

// boundaries are comparisons, with what they are when the bound moves to the other side.
var boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

var arithmetic = map[token.Token]string{token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*"}

func (f *finder) binary(expr *ast.BinaryExpr) {
	if f.constantOf(expr) != nil {
		return
	}
	x, y := f.text(expr.X), f.text(expr.Y)
	switch expr.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{expr.X, expr.Y} {
			if expr.Op == token.LAND {
				f.always("operand true", operand)
			} else {
				f.never("operand false", operand)
			}
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if isOrdered(f.typeOf(expr.X)) {
			f.either(fmt.Sprintf("%s for %s", boundaries[expr.Op], expr.Op), expr, f.text(expr), x+" "+boundaries[expr.Op]+" "+y)
		}
	case token.ADD, token.SUB, token.MUL, token.QUO:
		if isNumber(f.typeOf(expr)) {
			f.instead(fmt.Sprintf("%s for %s", arithmetic[expr.Op], expr.Op), expr, f.text(expr), "("+x+") "+arithmetic[expr.Op]+" ("+y+")")
		}
	}
}

// values are expressions whose values are stored, returned or handed over.
func (f *finder) values(exprs []ast.Expr) {
	for _, expr := range exprs {
		f.value(expr, false)
	}
}

// value is one of them. Of the field of a literal the zero value comes with the removed
// field.
func (f *finder) value(expr ast.Expr, field bool) {
	t := f.typeOf(expr)
	if t == nil {
		return
	}
	constant := f.constantOf(expr)
	switch {
	case isBool(t) && constant != nil:
		if !field || f.zero(expr) {
			f.add("flipped", expr.Pos(), expr.End(), f.text(expr), mutantIsOn+" != (", ")")
		}
	case isBool(t):
		if _, not := expr.(*ast.FuncLit); !not {
			f.always("value true", expr)
			if !field {
				f.never("value false", expr)
			}
		}
	case isDuration(t) && !f.zero(expr):
		f.wrap("doubled", "mutantDouble", t, expr)
		if !field {
			f.wrap("zero", "mutantZero", t, expr)
		}
	}
}

// wrap puts a call of one of the functions of switchFile around an expression.
func (f *finder) wrap(op, function string, t types.Type, expr ast.Expr) {
	if name := f.named(t); name != "" {
		f.add(op, expr.Pos(), expr.End(), f.text(expr), fmt.Sprintf("%s[%s](%s, ", function, name, idMark), ")")
	}
}

// symmetric are functions whose first arguments can change places.
var symmetric = []string{"min", "max", "Equal", "DeepEqual", "EqualFold", "Join"}

func (f *finder) call(call *ast.CallExpr) {
	if f.pkg.info.Types[call.Fun].IsType() {
		return // a conversion
	}
	if f.constantOf(call) != nil {
		return
	}
	name := ""
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		f.instant(call, fun)
	}
	f.values(call.Args)
	if f.pkg.info.Types[call.Fun].IsBuiltin() && len(call.Args) > 1 && (name == "min" || name == "max") {
		other := map[string]string{"min": "max", "max": "min"}[name]
		f.instead(other+" for "+name, call, f.text(call), other+f.file.source(call.Lparen, call.End()))
	}
	if !slices.Contains(symmetric, name) {
		f.swapped(call)
	}
}

// instant shifts the bound of a comparison of times.
func (f *finder) instant(call *ast.CallExpr, fun *ast.SelectorExpr) {
	if t := f.typeOf(fun.X); t == nil || !isNamed(t, "time", "Time") || len(call.Args) != 1 {
		return
	}
	other := map[string]string{"Before": "After", "After": "Before"}[fun.Sel.Name]
	if other == "" {
		return
	}
	f.either("bound for "+fun.Sel.Name, call, f.text(call),
		fmt.Sprintf("!%s.%s(%s)", f.text(fun.X), other, f.text(call.Args[0])))
}

// swapped exchanges two neighbouring arguments of one type.
func (f *finder) swapped(call *ast.CallExpr) {
	signature, ok := f.pkg.info.Types[call.Fun].Type.Underlying().(*types.Signature)
	if !ok || call.Ellipsis.IsValid() {
		return
	}
	for i := range len(call.Args) - 1 {
		a, b := call.Args[i], call.Args[i+1]
		if i+1 >= signature.Params().Len() || signature.Variadic() && i+1 >= signature.Params().Len()-1 {
			return
		}
		if !types.Identical(signature.Params().At(i).Type(), signature.Params().At(i+1).Type()) || f.text(a) == f.text(b) {
			continue
		}
		other := f.file.source(call.Pos(), a.Pos()) + f.text(b) + f.file.source(a.End(), b.Pos()) + f.text(a) +
			f.file.source(b.End(), call.End())
		f.callInstead("swapped arguments", call, f.text(call), other)
	}
}

// callInstead is a call with another one to take its place.
func (f *finder) callInstead(op string, call *ast.CallExpr, what, other string) {
	switch f.parent(1).(type) {
	case *ast.GoStmt, *ast.DeferStmt:
		return // what is evaluated when would change
	case *ast.ExprStmt:
		f.add(op, call.Pos(), call.End(), what, fmt.Sprintf("if %s { %s } else { ", mutantIsOn, other), " }")
		return
	}
	f.instead(op, call, what, other)
}

// channel makes a case of a select never ready: nothing comes through a nil channel.
func (f *finder) channel(clause *ast.CommClause) {
	var receive ast.Expr
	switch comm := clause.Comm.(type) {
	case *ast.ExprStmt:
		receive = comm.X
	case *ast.AssignStmt:
		receive = comm.Rhs[0]
	case *ast.SendStmt:
		f.silent(comm.Chan, f.text(comm))
		return
	}
	if unary, ok := receive.(*ast.UnaryExpr); ok {
		f.silent(unary.X, f.text(clause.Comm))
	}
}

func (f *finder) silent(channel ast.Expr, what string) {
	if name := f.named(f.typeOf(channel)); name != "" {
		f.add("case removed", channel.Pos(), channel.End(), what, "mutantZero["+strings.TrimSpace(name)+"]("+idMark+", ", ")")
	}
}
