package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// spell is a time with failures of one kind of call, for example because of a missing permission, a quota or a
// policy.
type spell struct {
	from, until Time
	node        *node // nil: all nodes
	kind        callKind
	result      core.Result
	after       time.Duration // Retry-After of the server
}

type callKind int

const (
	reads callKind = iota
	writes
	requests
	watches
	callKinds
)

func (k callKind) String() string { return [...]string{"reads", "writes", "requests", "watches"}[k] }

func kindOf(op core.Op) callKind {
	switch op {
	case core.Read:
		return reads
	case core.SendRequest:
		return requests
	case core.NoOp, core.Acquire, core.Renew, core.Release, core.HandOver:
	}
	return writes
}

// refuse begins a spell. Most spells affect writes.
func (w *world) refuse() {
	s := &spell{from: w.now, kind: callKind(w.rng.IntN(int(callKinds)))}
	if w.rng.IntN(2) == 0 {
		s.kind = writes
	}
	if w.rng.IntN(3) > 0 {
		s.node = w.some()
	}
	w.oneOf(
		func() { s.result = core.Refused },
		func() { s.result = core.Unknown },
		func() { s.result, s.after = core.Refused, 10*time.Minute },
		func() { s.result = core.Conflict }, // a webhook that denies with this code
	)
	length := w.timing.lease + w.within(w.timing.faults/2)
	s.until = min(w.now.add(length), w.calm)
	who := "all"
	if s.node != nil {
		who = s.node.name
	}
	w.tracef("%s of %s fail (%s) until %v", s.kind, who, s.result, s.until)
	w.spells = append(w.spells, s)
	w.happened(1)
	w.at(s.until, func() { w.happened(1) })
	if s.kind == watches {
		w.loseWatches(s)
	}
	w.watchMinutes(s)
}

// loseWatches breaks the watches of the spell.
func (w *world) loseWatches(s *spell) {
	for _, n := range w.nodes {
		if n.p != nil && (s.node == nil || s.node == n) {
			n.p.closeWatch(w.within(time.Second))
		}
	}
}

// hit returns the spell that affects a call of this kind now.
func (p *process) hit(kind callKind) *spell {
	for _, s := range p.w.spells {
		if s.kind == kind && s.affects(p.n) {
			return s
		}
	}
	return nil
}

// affects reports whether calls of n fail now.
func (s *spell) affects(n *node) bool { return n.w.now < s.until && (s.node == nil || s.node == n) }

// trouble reports whether a spell affects n.
func (n *node) trouble() bool {
	return slices.ContainsFunc(n.w.spells, func(s *spell) bool { return s.affects(n) })
}
