package main

import (
	"fmt"
	"go/ast"

	"incumbent.dev/incumbent/internal/testutil/source"
)

// check returns the places where a test sleeps. In a synctest bubble time.Sleep is exact and allowed.
func check(m *source.Module) (findings []string) {
	for _, file := range m.Files {
		if !file.Test() {
			continue
		}
		bubbles := bubbles(file)
		for _, use := range file.Uses("time.Sleep") {
			if !inside(use.Node, bubbles) {
				findings = append(findings, fmt.Sprintf("%s:%d: a test must wait for a condition instead of sleeping", file.Name, use.Line))
			}
		}
	}
	return findings
}

// bubbles returns the functions that are passed to synctest.Test.
func bubbles(file *source.File) (all []*ast.FuncLit) {
	entries := map[*ast.SelectorExpr]bool{}
	for _, use := range file.Uses("testing/synctest.Test") {
		entries[use.Node] = true
	}
	ast.Inspect(file.Syntax, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		if fun, ok := call.Fun.(*ast.SelectorExpr); !ok || !entries[fun] {
			return true
		}
		for _, arg := range call.Args {
			if body, ok := arg.(*ast.FuncLit); ok {
				all = append(all, body)
			}
		}
		return true
	})
	return all
}

func inside(node ast.Node, bodies []*ast.FuncLit) bool {
	for _, body := range bodies {
		if body.Pos() <= node.Pos() && node.End() <= body.End() {
			return true
		}
	}
	return false
}
