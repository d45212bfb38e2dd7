package main

import (
	"context"
	"sync"
	"time"
)

// gate has everyone begin to measure at the same moment: when all who entered are ready. Before that,
// hundreds of processes make their connections, and nobody's times mean anything.
type gate struct {
	lasts  time.Duration
	ready  sync.WaitGroup
	opened chan struct{}
	until  time.Time // valid once opened
}

// newGate makes a gate behind which measuring goes on for that long.
func newGate(lasts time.Duration) *gate {
	return &gate{lasts: lasts, opened: make(chan struct{})}
}

// enter returns what reports that one more is ready; only its first call counts.
func (g *gate) enter() (ready func()) {
	g.ready.Add(1)
	return sync.OnceFunc(g.ready.Done)
}

// open waits until all are ready.
func (g *gate) open() {
	g.ready.Wait()
	g.until = time.Now().Add(g.lasts)
	close(g.opened)
}

// wait returns until when to measure, once the gate is open.
func (g *gate) wait(ctx context.Context) (until time.Time, err error) {
	select {
	case <-g.opened:
		return g.until, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}
