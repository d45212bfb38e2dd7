package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// spell is a time in which calls of one kind fail, or no watch can be had, while all else
// goes on: a permission that was taken away, a quota, a policy, a store that is full.
type spell struct {
	from, until Time
	node        *node // nil: it hits all
	kind        callKind
	result      core.Result
	after       time.Duration // the server's Retry-After
}

// callKind is a kind of call; a spell makes those of one kind fail.
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

// refuse begins a spell. Most often it hits writes.
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
		func() { s.result = core.Conflict }, // a webhook that denies with that code
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

// loseWatches breaks the watches that the spell hits. They are tried again and again.
func (w *world) loseWatches(s *spell) {
	for _, n := range w.nodes {
		if n.p != nil && (s.node == nil || s.node == n) {
			n.p.closeWatch(w.within(time.Second))
		}
	}
}

// hit is the spell, if any, that a call of the kind meets now.
func (p *process) hit(kind callKind) *spell {
	for _, s := range p.w.spells {
		if s.kind == kind && p.w.now < s.until && (s.node == nil || s.node == p.n) {
			return s
		}
	}
	return nil
}

// trouble reports whether a spell keeps n from what it would do.
func (n *node) trouble() bool {
	for _, s := range n.w.spells {
		if n.w.now < s.until && (s.node == nil || s.node == n) {
			return true
		}
	}
	return false
}
