package main

import (
	"fmt"
	"go/ast"

	"incumbent.dev/incumbent/tests/internal/source"
)

// The rules by the names that allow.txt uses.
const (
	// ruleClock: reading the clock, or waiting on it, is the job of few files; all
	// others take the time as an argument.
	ruleClock = "clock"
	// ruleContext: a context begins in few files; all others are given theirs.
	ruleContext = "context"
	// ruleSleep: a test that sleeps guesses. In a synctest bubble time.Sleep is exact.
	ruleSleep = "sleep"
	// ruleFunction: a function does one thing.
	ruleFunction = "function"
	// ruleFile: a file is about one thing.
	ruleFile = "file"
)

const (
	longestFunction = 60
	longestFile     = 400
)

// Finding is one place where a rule is broken.
type Finding struct {
	Rule string
	// File is the path inside the module, Func the function where the rule is about one.
	File, Func string
	Line       int
	Message    string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s (%s)", f.File, f.Line, f.Message, f.Rule)
}

// check applies every rule to every file.
func check(m *source.Module) []Finding {
	var findings []Finding
	for _, file := range m.Files {
		if file.Test() {
			findings = append(findings, sleeps(file)...)
		} else {
			findings = append(findings, clocks(file)...)
			findings = append(findings, contexts(file)...)
			findings = append(findings, functions(file)...)
		}
		findings = append(findings, length(file)...)
	}
	return findings
}

func clocks(file *source.File) []Finding {
	var findings []Finding
	for _, use := range file.Uses("time.Now", "time.Since", "time.Until", "time.Sleep", "time.Tick") {
		findings = append(findings, Finding{
			Rule: ruleClock, File: file.Name, Line: use.Line,
			Message: use.Name + ": take the time as an argument, or wait on something",
		})
	}
	return findings
}

func contexts(file *source.File) []Finding {
	var findings []Finding
	for _, use := range file.Uses("context.Background", "context.TODO") {
		findings = append(findings, Finding{
			Rule: ruleContext, File: file.Name, Line: use.Line,
			Message: use.Name + ": take a context from the caller",
		})
	}
	return findings
}

// sleeps finds time.Sleep in tests, except in functions given to synctest.Test.
func sleeps(file *source.File) []Finding {
	var bubbles []*ast.FuncLit
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
				bubbles = append(bubbles, body)
			}
		}
		return true
	})
	var findings []Finding
	for _, use := range file.Uses("time.Sleep") {
		if inside(use.Node, bubbles) {
			continue
		}
		findings = append(findings, Finding{
			Rule: ruleSleep, File: file.Name, Line: use.Line,
			Message: "a test waits for what it wants to see, it does not sleep",
		})
	}
	return findings
}

func inside(node ast.Node, bodies []*ast.FuncLit) bool {
	for _, body := range bodies {
		if body.Pos() <= node.Pos() && node.End() <= body.End() {
			return true
		}
	}
	return false
}

func functions(file *source.File) []Finding {
	var findings []Finding
	for _, decl := range file.Syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		first := file.Line(fn.Pos())
		lines := file.Line(fn.End()) - first + 1
		if lines > longestFunction {
			findings = append(findings, Finding{
				Rule: ruleFunction, File: file.Name, Func: fn.Name.Name, Line: first,
				Message: fmt.Sprintf("%s has %d lines, more than %d", fn.Name.Name, lines, longestFunction),
			})
		}
	}
	return findings
}

func length(file *source.File) []Finding {
	if file.Lines <= longestFile {
		return nil
	}
	return []Finding{{
		Rule: ruleFile, File: file.Name, Line: file.Lines,
		Message: fmt.Sprintf("the file has %d lines, more than %d", file.Lines, longestFile),
	}}
}
