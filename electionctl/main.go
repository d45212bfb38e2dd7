package main

import (
	"os"

	"incumbent.dev/incumbent/electionctl/internal/ctl"
	"incumbent.dev/incumbent/electionctl/internal/run"
)

func main() {
	run.Supervise()
	os.Exit(ctl.Main(os.Args[1:]))
}
