package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// order is the newest word of an operator that was acknowledged, and whose term.
type order struct {
	term    core.Record
	paused  bool // else resumed
	ackedAt Time
}

// holdSeconds is longer than any run. Each order is for another time: one that says to the byte
// what its object still shows changes nothing, so that nobody could tell that it was given.
const holdSeconds = 3600

// give has an operator pause the present holder, or let rank count again. It reaches the lock by
// both objects (way 0), or by one (its number and one): replicas of either neighbouring step
// know no more.
func (w *pairWorld) give(pause bool) {
	way, leader := w.rng.IntN(3), w.leader()
	if leader == nil {
		return
	}
	if !leader.both && way != 0 {
		way = 1 + int(w.single) // the leader knows no other
	}
	v := w.truth()
	h := core.Half(max(0, way-1))
	s := *v.Of(h)
	if way == 0 {
		s = w.combined(v, "operator")
		h, _ = w.rules.shown(v.Pair, "operator")
	}
	if s.Record != leader.s.Snap.Record || s.Content != core.Readable {
		return // between two writes
	}
	w.orders++
	hold := core.Hold{
		Holder: s.Record.Holder, Transitions: s.Record.Transitions, Seconds: holdSeconds + w.orders, Requester: "operator", Reason: core.HoldForPause,
	}
	if !pause {
		if old := s.Notes.Hold; old.Holder != hold.Holder || old.Transitions != hold.Transitions || old.Seconds <= 0 {
			return
		}
		hold.Seconds = 0
		if !w.rules.zeroes {
			hold = core.Hold{}
		}
	}
	w.tracef("an operator gives an order by way %d: pause %v", way, pause)
	w.order = nil // under way
	w.writeHold(h, *v.Of(h), hold)
	acked := func() {
		w.tracef("the order is acknowledged")
		w.order = &order{term: s.Record, paused: pause, ackedAt: w.now}
	}
	if way != 0 || !w.combinedInBoth(v) || !w.rules.aligns {
		acked()
		return
	}
	w.after(w.within(20*time.Millisecond), func() {
		w.align(h.Other(), s.Record, hold)
		acked()
	})
}

func (w *pairWorld) combinedInBoth(v core.PairSight) bool {
	_, both := w.rules.shown(v.Pair, "operator")
	return both
}

// writeHold puts a hold on one object.
func (w *pairWorld) writeHold(h core.Half, s core.Snapshot, hold core.Hold) {
	s = withoutOld(s)
	s.Notes.Hold = hold
	w.put(h, w.objects[h], s.Record, s.Notes)
}

// align replaces a hold that the other object of one term shows.
func (w *pairWorld) align(h core.Half, term core.Record, hold core.Hold) {
	if s := w.objects[h]; (core.PairWrite{Record: term}).Aligns(s, hold) {
		w.writeHold(h, s, hold)
	}
}

// leader is who works, and holds the lock as far as it knows.
func (w *pairWorld) leader() *pairProcess {
	for _, p := range w.procs {
		if p.work && p.s.Phase == core.Leading {
			return p
		}
	}
	return nil
}

// nominates: nobody who may not take the lock gets a leader to give it up.
func (w *pairWorld) nominates(c *pairCall) {
	c.p.asked = c.p.asked || c.op == core.Ask
	for _, q := range w.procs {
		if c.op == core.HandOver && q.id == c.record.Holder && q.asked && !q.able() {
			w.violate(NoFlapping, "%s has drained for %s, which may not take the lock", c.p.id, q.id)
		}
	}
}

// acknowledged looks at the truth when a leader's write is. One that was sent after an order was
// acknowledged leaves it standing, and a hold that was ended does not come back with it.
func (w *pairWorld) acknowledged(c *pairCall) {
	w.nominates(c)
	o, r := w.order, c.record
	if o == nil || c.op != core.Renew || c.sentAt <= o.ackedAt ||
		r.Holder != o.term.Holder || r.Transitions != o.term.Transitions || r.Acquired != o.term.Acquired {
		return
	}
	is := w.objects[w.single]
	if c.p.both {
		v := w.truth()
		if is = w.combined(v, "operator"); !w.combinedInBoth(v) {
			return
		}
	}
	h := is.Notes.Hold
	stands := h.Holder == is.Record.Holder && h.Transitions == is.Record.Transitions && h.Seconds > 0
	if is.Record.Holder == r.Holder && is.Record.Acquired == r.Acquired && stands != o.paused {
		w.violate(Orders, "%s has renewed since an operator's order (pause %v), and the hold stands: %v", c.p.id, o.paused, stands)
		w.order = nil
	}
}
