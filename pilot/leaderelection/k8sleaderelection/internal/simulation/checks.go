package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

type checks struct {
	w           *world
	newestToken uint64
	leaderless  Time // time since which there is no leader, or -1
	busyAt      Time // last end of run functions or of a process, or start as the only process
	settledOnce bool
	orderly     int // number of releases that a follower should react to
	handovers   budget
	nominations budget
	leader      string // process that last started run functions
	herd        herd
}

// mayAct reports whether p could be acting now.
func (p *process) mayAct() bool {
	if p.ended {
		return false
	}
	if in := p.n.inner; in != nil {
		return in.p != nil && in.p.mayAct() || p.alive && !p.starved()
	}
	return p.openUntil() != (core.Validity{}) && p.n.clocks.left(p.openUntil(), p.w.now) > 0 || p.alive && !p.starved()
}

// starved reports whether p was paused and its run functions outlived validity and drain limit.
func (p *process) starved() bool {
	if o := p.outside(); o != nil && o.starved() {
		return true
	}
	return p.pausedAt >= p.ackedAt && p.outlived()
}

// duplicated reports whether another live process of the same name acquired the lock of p.
func (p *process) duplicated() bool { return p.acting != nil && p.acting.duplicated }

func (p *process) outlived() bool {
	end := p.lastGate
	end.Mono = end.Mono.After(p.cfg.DrainLimit)
	end.Boot += int64(p.cfg.DrainLimit)
	end.Wall += int64(p.cfg.DrainLimit)
	return p.n.clocks.left(end, p.w.now) < 0
}

// start is called when p is about to start its run functions.
func (c *checks) start(p *process) {
	w := c.w
	c.startInside(p)
	if p.alive {
		w.violate(OneTerm, "%v starts run functions while the previous ones run", p)
	}
	for _, q := range w.procs {
		if q != p && q.id != p.id && q.mayAct() && !q.duplicated() && !p.unknowable(q) && !q.unknowableTerm(p.acked) {
			w.violate(OneAtATime, "%v starts while %v may act: run functions %v, gate for %v", p, q, q.alive, q.n.clocks.left(q.gate, w.now))
		}
	}
	for _, q := range w.procs {
		if q != p && q.id == p.id && q.work && !q.ended && q.watches() && p.watches() {
			w.violate(OneAtATime, "%v starts while %v of the same name acts", p, q)
		}
	}
	if s, left := p.mustWait(p.now().Mono); left > 0 {
		w.violate(Settling, "%v starts %v before the lease of %q with token %d expires by its clock", p, left, s.term.id, s.term.token)
	}
	if left := p.s.Validity.Left(p.now()); left < p.cfg.Validity/2 && p.n.inner == nil {
		w.violate(SlowNotDead, "%v starts %v before its validity ends, and a renewal takes longer", p, left)
	}
	c.startWithPeers(p)
	c.token(p)
	p.acting, p.stopAsked, p.seen.asked = p.acked, false, false
	p.lastGate = p.gate
	c.orderly++
}

// watches reports whether the watch of p works without late events, and its calls are answered.
func (p *process) watches() bool {
	return p.n.attends() && !p.n.trouble() && p.lag == 0 && p.lateUntil < p.w.now && p.troubledAt.add(2*p.cfg.Retry) < p.w.now
}

// token checks the fencing token of a starting term.
func (c *checks) token(p *process) {
	w, token := c.w, p.s.Term.Token
	if p.acked == nil || p.acked.token != token {
		w.violate(Token, "%v acts with token %d, which does not belong to its acknowledged acquire", p, token)
		return
	}
	if p.acked.removedWith != nil || p.acked.duplicated {
		return // the record was gone before the reply; later holders could not detect it
	}
	if token <= c.newestToken {
		w.violate(Token, "%v acts with token %d after token %d", p, token, c.newestToken)
	}
	c.newestToken = token
}

// gate is called before the gate of p is set.
func (c *checks) gate(p *process, a core.Action) {
	none := core.Validity{}
	if a.Gate == none {
		return
	}
	starts := a.Run && !p.work
	if p.gate == none && !starts {
		c.w.violate(OneTerm, "%v opens its gate again without a new term", p)
	}
	// A process may count only an older write, or the same one from when it was first sent. Its wall clock may have been set back since.
	if !p.anyAck || p.tooLong(a.Gate, p.ackedSent) && p.tooLong(a.Gate, p.ackedFirst) && p.tooLong(a.Gate, p.ackedOlder) {
		c.w.violate(Validity, "the gate of %v is open %v longer than validity", p, p.ackedSent.Plus(p.cfg.Validity).Mono.Until(a.Gate.Mono))
	}
	p.lastGate = a.Gate
	if a.Run {
		c.watchValidity(p, a.Gate)
	}
}

// tooLong reports whether the gate is open for longer than the validity of a write that was sent at that time.
func (p *process) tooLong(gate core.Validity, sent core.ClockReading) bool {
	allowed := sent.Plus(p.cfg.Validity)
	return gate.Mono > allowed.Mono || gate.Boot > allowed.Boot || gate.Wall > allowed.Wall
}

// watchValidity checks shortly after the end of validity that the run functions were cancelled.
func (c *checks) watchValidity(p *process, gate core.Validity) {
	const grace = 150 * time.Millisecond
	if p.watched == gate {
		return
	}
	p.watched = gate
	c.w.at(p.n.clocks.when(gate.Mono).add(grace), func() {
		if p.work && p.gate == gate && !p.ended && !p.n.paused && p.pausedAt < p.ackedAt {
			c.w.violate(HardStop, "the run functions of %v were not cancelled at the end of validity", p)
		}
	})
}

// action is called with each action before it is applied.
func (c *checks) action(p *process, in core.Input, v view, a core.Action) {
	w := c.w
	shown := in.Kind == core.Seen && in.Snap.Version >= p.s.Snap.Version || in.Kind == core.Replied && in.Result == core.OK
	if shown && p.fresh && a.Run && v.snap.Exists && v.snap.Content == record.Readable &&
		v.snap.Record.Holder != "" && v.snap.Record.Holder != p.id {
		w.violate(HardStop, "%v continues although it has seen holder %q", p, v.snap.Record.Holder)
	}
	if shown && p.fresh && a.Run && v.term != nil && v.term.id == p.id && v.term.p != p && v.snap.Record.Holder == p.id &&
		!p.stamped(v.snap.Record) {
		w.violate(HardStop, "%v continues although another process writes in its name", p)
	}
	if p.work && !a.Run && !p.stopAsked {
		c.lost(p)
	}
	if p.turnsAt.add(200*time.Millisecond) < w.now {
		p.turnsAt, p.turns = w.now, 0
	}
	if p.turns++; p.turns == 150 {
		w.violate(Quiet, "%v: a hot loop, 150 steps in 200ms", p)
		w.root().end, w.root().aborted = w.now, true // stop, it would never end
	}
}

// lost is called when p stops acting without a stop.
func (c *checks) lost(p *process) {
	w := c.w
	if p.acting == nil || p.acting.disturbed {
		return
	}
	if w.slow.steady {
		w.violate(SlowNotDead, "%v stops (%s), and an answer needs %v", p, p.s.Why, w.slow.total())
		return
	}
	if p.s.Drain.HandOver && addressed(p.base.snap) && p.base.snap.Annotations.Request.Accepted {
		return // see checkAcceptance
	}
	gives := p.s.Why == core.HandingOver || p.s.Why == core.Yielding
	if s := p.base.snap; w.mode.Coordinated && gives && s.Strategy && s.Preferred != "" && s.Preferred != p.id && s.Record.Holder == p.id {
		if p.seen.paused(p.now().Mono) {
			w.violate(Orders, "%v steps down for %q despite a hold", p, s.Preferred)
		}
		return // a coordinator prefers another candidate
	}
	now := p.n.clocks.moment(w.now)
	// If a clock was set back and ahead, the earlier end of the two validities counts.
	if left := min(p.gate.Left(now), p.ackedSent.Plus(p.cfg.Validity).Left(now)); left > 0 {
		w.violate(StepDown, "%v stops (%s) %v before its validity ends, and its record is unchanged", p, p.s.Why, left)
		return
	}
	hangs := p.call != nil && w.now.since(p.call.sentAt) > slow
	if p.troubledAt < p.ackedAt && !hangs {
		w.violate(StepDown, "%v stops (%s) although it could renew", p, p.s.Why)
	}
}

// slow is a duration of a call that explains why a leader did not renew.
const slow = time.Second

// seenStored is called before p processes a view. A renewal that is seen stored needs no reply.
func (c *checks) seenStored(p *process, v view) {
	if by := v.by; by != nil && by.p == p && by.op == core.Renew && by.sentAt > p.ackedAt {
		p.acknowledged(by)
	}
}

func (p *process) acknowledged(call *call) {
	if call.sentAt > p.ackedAt {
		p.ackedOlder = p.ackedSent
	}
	p.ackedSent, p.ackedFirst, p.ackedAt, p.anyAck = call.sent, call.firstSent, call.sentAt, true
	if call.op == core.Acquire || call.op == core.Renew {
		p.newestWrite = writeOf(call.record)
	}
}

// answered is called before p processes the end of a call.
func (c *checks) answered(p *process, call *call, result core.Result, v view) {
	now := c.w.now
	c.countRace(p, call, result)
	if result == core.Unknown && p.hit(kindOf(call.op)) == nil || now.since(call.sentAt) > slow {
		p.troubledAt = now
	}
	outdated := call.op == core.Read && result != core.OK && p.base.snap.Version != c.w.store.now.snap.Version
	if (outdated || result == core.Conflict && call.op != core.Read) && p.hit(reads) != nil {
		p.troubledAt = now // a label changed the version, and reads fail
	}
	kind := kindOf(call.op)
	if result != core.OK && !p.fails[kind] {
		p.failedAt[kind] = call.sentAt
	}
	p.fails[kind] = result != core.OK
	if result != core.OK || call.op == core.Read || v.snap.Version == call.base.Version {
		return
	}
	p.acknowledged(call)
	if call.op == core.Acquire {
		p.acked = v.term
	}
}
