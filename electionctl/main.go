package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"incumbent.dev/incumbent/electionctl/internal/ctl"
)

func main() {
	os.Exit(run())
}

// run is main with deferred calls.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt) //nolint:forbidigo // the process' root context
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills
	terminal := term.IsTerminal(int(os.Stdout.Fd()))
	width, _, _ := term.GetSize(int(os.Stdout.Fd())) // 0 without a terminal
	program := &ctl.Program{
		IOStreams:   genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Colour:      terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Width:       width,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())),
	}
	return program.Run(ctx, os.Args[1:])
}
