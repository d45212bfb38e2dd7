package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "deploy/charts/pilot/files/dashboard.json", "where to write it")
	flag.Parse()
	content, err := render()
	if err == nil {
		err = os.WriteFile(*out, content, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}
