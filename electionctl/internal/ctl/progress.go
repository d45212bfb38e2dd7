package ctl

import (
	"fmt"
	"sync"
	"time"
)

// progressDelay is the time after which progress prints a line.
const progressDelay = time.Second

// progress prints what the command waits for, if it takes longer than progressDelay.
func (p *Program) progress(what string) (stop func()) {
	done := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		timer := time.NewTimer(progressDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
			fmt.Fprintln(p.ErrOut, plain(what)+" …")
		case <-done:
		}
	})
	return func() {
		close(done)
		printing.Wait()
	}
}
