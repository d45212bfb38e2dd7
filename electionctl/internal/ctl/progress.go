package ctl

import (
	"fmt"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
)

// progressDelay is the time after which progress prints a line.
const progressDelay = time.Second

// progress prints what the command waits for, if it takes longer than progressDelay.
func (p *Program) progress(what string) (stop func()) {
	show := sync.OnceFunc(func() { fmt.Fprintln(p.ErrOut, inspect.Printable(what)+" …") })
	timer := time.AfterFunc(progressDelay, show)
	return func() {
		if !timer.Stop() {
			show() // waits until the line is printed
		}
	}
}
