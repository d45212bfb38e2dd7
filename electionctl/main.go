package main

import (
	"os"

	"incumbent.dev/incumbent/electionctl/internal/ctl"
)

func main() { os.Exit(ctl.Main(os.Args[1:])) }
