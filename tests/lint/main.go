package main

import (
	_ "embed"
	"fmt"
	"os"

	"incumbent.dev/incumbent/tests/internal/source"
)

//go:embed allow.txt
var allowed string

func main() {
	findings, err := lint(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// lint checks the module in a folder against all rules.
func lint(root string) ([]Finding, error) {
	module, err := source.Load(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	exceptions, err := parseExceptions(allowed)
	if err != nil {
		return nil, err
	}
	return exceptions.filter(check(module)), nil
}
