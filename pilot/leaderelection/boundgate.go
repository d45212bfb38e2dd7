package leaderelection

import (
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// boundGate is a gate that ends with the earlier of two covers: that of the election's
// own lock, and that of a predecessor's.
type boundGate struct {
	gate k8sleaderelection.Gate

	mu    sync.Mutex
	term  k8sleaderelection.Term
	end   k8sleaderelection.Cover
	bound k8sleaderelection.Cover
}

// Set implements k8sleaderelection.Gate.
func (g *boundGate) Set(term k8sleaderelection.Term, end k8sleaderelection.Cover) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term, g.end = term, end
	g.apply()
}

// Drain implements k8sleaderelection.Gate.
func (g *boundGate) Drain() { g.gate.Drain() }

// setBound sets the other cover; the zero Cover shuts the gate.
func (g *boundGate) setBound(bound k8sleaderelection.Cover) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bound = bound
	g.apply()
}

// left is how much of the other cover remains.
func (g *boundGate) left(now k8sleaderelection.Moment) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bound.Left(now)
}

func (g *boundGate) apply() {
	// No cover is the zero one, which is the earliest.
	g.gate.Set(g.term, k8sleaderelection.Cover{
		Mono: min(g.end.Mono, g.bound.Mono), Boot: min(g.end.Boot, g.bound.Boot), Wall: min(g.end.Wall, g.bound.Wall),
	})
}
