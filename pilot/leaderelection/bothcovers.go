package leaderelection

import (
	"sync"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// bothCovers moves a gate that ends with the earlier of two covers: that of an election's own lock, whose term it is,
// and that of its predecessor's.
type bothCovers struct {
	gate k8sleaderelection.Gate

	mu     sync.Mutex
	term   k8sleaderelection.Term
	covers [2]k8sleaderelection.Validity
}

// coverOf is the one of two covers that an elector moves.
type coverOf struct {
	*bothCovers
	which int
}

func (g *bothCovers) first() k8sleaderelection.Gate  { return coverOf{g, 0} }
func (g *bothCovers) second() k8sleaderelection.Gate { return coverOf{g, 1} }

// Set implements k8sleaderelection.Gate.
func (g coverOf) Set(term k8sleaderelection.Term, end k8sleaderelection.Validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.covers[g.which] = end; g.which == 0 {
		g.term = term
	}
	// No cover is the zero one, which is the earliest.
	a, b := g.covers[0], g.covers[1]
	g.gate.Set(g.term, k8sleaderelection.Validity{Mono: min(a.Mono, b.Mono), Boot: min(a.Boot, b.Boot), Wall: min(a.Wall, b.Wall)})
}

// Drain implements k8sleaderelection.Gate.
func (g coverOf) Drain() { g.gate.Drain() }
