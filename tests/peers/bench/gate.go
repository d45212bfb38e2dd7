package main

import (
	"context"
	"sync"
	"time"
)

// gate starts the measurements at the same time, when all participants are ready. Until then hundreds of processes
// connect.
type gate struct {
	lasts  time.Duration
	ready  sync.WaitGroup
	opened chan struct{}
	until  time.Time // valid once opened
}

// newGate returns a gate for measurements of that length.
func newGate(lasts time.Duration) *gate {
	return &gate{lasts: lasts, opened: make(chan struct{})}
}

// enter returns a function that reports readiness. Only its first call counts.
func (g *gate) enter() (ready func()) {
	g.ready.Add(1)
	return sync.OnceFunc(g.ready.Done)
}

// open waits until all participants are ready.
func (g *gate) open() {
	g.ready.Wait()
	g.until = time.Now().Add(g.lasts)
	close(g.opened)
}

// wait returns the end of the measurements, after the gate has opened.
func (g *gate) wait(ctx context.Context) (until time.Time, err error) {
	select {
	case <-g.opened:
		return g.until, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}
