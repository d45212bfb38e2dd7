package ctl

import (
	"fmt"
	"sync"
	"time"
)

// silence is how long something may take before a word is said.
const silence = time.Second

// progress says what is waited for, once that takes longer than a second; stop ends it.
func (p *Program) progress(what string) (stop func()) {
	done := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		timer := time.NewTimer(silence)
		defer timer.Stop()
		select {
		case <-timer.C:
			fmt.Fprintln(p.ErrOut, plain(what)+" …")
		case <-done:
		}
	})
	return func() {
		close(done)
		saying.Wait()
	}
}
