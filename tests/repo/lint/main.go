package main

import (
	"fmt"
	"os"

	"incumbent.dev/incumbent/internal/testutil/source"
)

func main() {
	module, err := source.Load(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	findings := append(check(module), checkNames(os.DirFS("."), string(makefile))...)
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}
