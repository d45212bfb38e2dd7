package simulation

import (
	"slices"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Moves of different nodes often commute. Then an exploration plays the moves of one node first, and no other order. The moves are a
// persistent set: until one of them is played, no other node can do anything that depends on them. So each world in which time passes
// is still reached, and each start of run functions and each write meets all processes that may act.

// effect has the possible effects of a node's moves before time passes, while the other nodes do nothing.
type effect uint8

const (
	notKnown effect = iota
	inside          // they change only the node
	looks           // they also read the store
	changes         // they can change the store, or a process of the node may act from then on
)

// mostAhead limits the worlds of a lookAhead.
const mostAhead = 40

// lookAhead plays the moves of a node alone. The result is kept until the node or the store changes.
func (w *world) lookAhead(i int) effect {
	is := &w.nodes[i].effect
	if *is != notKnown {
		return *is
	}
	*is = inside
	left := mostAhead
	*is = w.playAhead(i, &left)
	return *is
}

func (w *world) playAhead(i int, left *int) effect {
	is := inside
	own := w.movesOf(i, soon, nil)
	for _, c := range own {
		is = max(is, w.effectOf(c))
	}
	for _, c := range own {
		if *left--; is == changes || *left < 0 {
			return changes
		}
		next := w.clone()
		if next.choose(c); !w.nodes[i].mayAct() && next.nodes[i].mayAct() {
			return changes
		}
		is = max(is, next.playAhead(i, left))
	}
	return is
}

func (n *node) mayAct() bool {
	return n.p != nil && n.p.mayAct() || n.inner != nil && n.inner.mayAct()
}

// effectOf returns the effect of one move.
func (w *world) effectOf(c choice) effect {
	is := moves[c.move].effect
	if is != changes || w.place(c).q != nil {
		return is
	}
	n := w.place(c)
	call := n.flying[c.variant]
	if call.op == core.Read || !n.w.store.accepts(call.base) {
		return looks
	}
	return changes
}

// reduce returns the choices that represent all, or all. The nodes have an order that does not depend on their names.
func (w *world) reduce(all []choice, order []int) []choice {
	last := all[len(all)-1]
	if w.choosing.left > 0 || last.move < 0 || last.node == all[0].node || w.coordinatorDue() {
		return all // faults of one node and a coordinator affect the others, or the time may pass
	}
	for _, i := range order {
		own := slices.DeleteFunc(slices.Clone(all), func(c choice) bool { return int(c.node) != i })
		must, is := false, inside
		for _, c := range own {
			must = must || !w.waits(c)
			is = max(is, w.effectOf(c))
		}
		if must && w.independent(i, is) {
			return own
		}
	}
	return all
}

// independent reports whether the other nodes can do nothing that depends on the possible moves of a node.
func (w *world) independent(node int, is effect) bool {
	for i := range w.nodes {
		if i == node {
			continue
		}
		if other := w.lookAhead(i); other == changes || other == looks && is == changes {
			return false
		}
	}
	return true
}
