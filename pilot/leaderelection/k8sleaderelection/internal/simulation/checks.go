package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// checks holds what the checks remember.
type checks struct {
	w           *world
	tokens      map[int]uint64 // the largest so far, by history
	leaderless  Time           // since when nobody leads, or -1
	lastChange  Time
	busyAt      Time // when functions last returned, or somebody last ended, or came to an empty place
	settledOnce bool
	orderly     int // counts releases that somebody should follow
	handovers   budget
	leader      string // who last started functions
}

// mayAct reports whether p could be acting at this very moment.
func (p *process) mayAct() bool {
	if p.ended {
		return false
	}
	return p.gate != (core.Validity{}) && p.n.clocks.left(p.gate, p.w.now) > 0 || p.alive && !p.starved()
}

// starved reports whether the promise no longer covers p's functions: it was paused,
// and they have outlived its cover and the drain limit.
func (p *process) starved() bool {
	return p.pausedAt >= p.ackedAt && p.outlived()
}

// duplicated reports whether another live process of p's name has taken its lock. Names have
// to be unique; where they are not, all that is left is that both step down.
func (p *process) duplicated() bool { return p.acting != nil && p.acting.duplicated }

func (p *process) outlived() bool {
	end := p.lastGate
	end.Mono = end.Mono.After(p.cfg.DrainLimit)
	end.Boot += int64(p.cfg.DrainLimit)
	end.Wall += int64(p.cfg.DrainLimit)
	return p.n.clocks.left(end, p.w.now) < 0
}

// start is called when p is about to start its functions.
func (c *checks) start(p *process) {
	w := c.w
	if p.alive {
		w.violate(OneTerm, "%v starts functions while its former ones run", p)
	}
	for _, q := range w.procs {
		if q != p && q.id != p.id && q.mayAct() && !q.duplicated() && !p.unknowable(q) && !q.unknowableTerm(p.acked) {
			w.violate(OneAtATime, "%v starts while %v may act: functions %v, gate for %v", p, q, q.alive, q.n.clocks.left(q.gate, w.now))
		}
	}
	if s, left := p.mustWait(p.now().Mono); left > 0 {
		w.violate(Settling, "%v starts %v before the lease of %q with token %d, as it saw it, has run out", p, left, s.term.id, s.term.token)
	}
	c.besidePeers(p)
	c.token(p)
	p.acting, p.stopAsked = p.acked, false
	p.lastGate = p.gate
	c.orderly++
}

// token checks the fencing token of the term that p begins to act in.
func (c *checks) token(p *process) {
	w, token := c.w, p.s.Term.Token
	if p.acked == nil || p.acked.token != token {
		w.violate(Token, "%v acts with token %d, which is not that of its acknowledged acquire", p, token)
		return
	}
	if c.tokens == nil {
		c.tokens = map[int]uint64{}
	}
	if p.acked.removedWith != nil || p.acked.duplicated {
		return // its record was gone before it was answered; those who came after could not know
	}
	history := w.store.historyOf(p.acked)
	if last := c.tokens[history]; token <= last {
		w.violate(Token, "%v acts with token %d after one acted with %d", p, token, last)
	}
	c.tokens[history] = token
}

// gate is called before p's gate is set.
func (c *checks) gate(p *process, a core.Action) {
	none := core.Validity{}
	if a.Gate == none {
		return
	}
	starts := a.Run && !p.work
	if p.gate == none && !starts {
		c.w.violate(OneTerm, "%v opens its gate again without a new term", p)
	}
	allowed := p.ackedSent.Plus(p.cfg.Validity)
	if !p.anyAck || a.Gate.Mono > allowed.Mono || a.Gate.Boot > allowed.Boot || a.Gate.Wall > allowed.Wall {
		c.w.violate(Cover, "%v may act %v longer than from the sending of its newest acknowledged write", p, allowed.Mono.Until(a.Gate.Mono))
	}
	p.lastGate = a.Gate
	if a.Run {
		c.watchCover(p, a.Gate)
	}
}

// watchCover looks, a little after the cover has ended, whether the functions were
// told so.
func (c *checks) watchCover(p *process, gate core.Validity) {
	const grace = 150 * time.Millisecond
	if p.watched == gate {
		return
	}
	p.watched = gate
	c.w.at(p.n.clocks.when(gate.Mono).add(grace), func() {
		if p.work && p.gate == gate && !p.ended && !p.n.paused && p.pausedAt < p.ackedAt {
			c.w.violate(HardStop, "%v's functions were not told to stop at the end of its cover", p)
		}
	})
}

// action is called with each action, before it is applied.
func (c *checks) action(p *process, in core.Input, v view, a core.Action) {
	w := c.w
	// An event of a restored store, with a smaller version, is taken for an old one.
	shown := in.Kind == core.Seen && in.Snap.Version >= p.s.Snap.Version || in.Kind == core.Replied && in.Result == core.OK
	if shown && p.fresh && a.Run && v.snap.Exists && v.snap.Content == core.Readable &&
		v.snap.Record.Holder != "" && v.snap.Record.Holder != p.id {
		w.violate(HardStop, "%v goes on although it has seen %q in the record", p, v.snap.Record.Holder)
	}
	if shown && p.fresh && a.Run && v.term != nil && v.term.id == p.id && v.term.p != p && v.snap.Record.Holder == p.id &&
		!p.stamped(v.snap.Record) {
		w.violate(HardStop, "%v goes on although it has seen that another process writes in its name", p)
	}
	if p.work && !a.Run && !p.stopAsked {
		c.lost(p)
	}
	if p.turnsAt.add(200*time.Millisecond) < w.now {
		p.turnsAt, p.turns = w.now, 0
	}
	if p.turns++; p.turns == 150 {
		w.violate(Quiet, "%v: a hot loop, 150 steps in 200ms", p)
		w.end, w.aborted = w.now, true // it would never end
	}
}

// lost is called when p stops acting and nobody asked it to.
func (c *checks) lost(p *process) {
	w := c.w
	if p.acting == nil || p.acting.disturbed {
		return
	}
	if p.s.Drain.Kind.HandsOver() && addressed(p.base.snap) && p.base.snap.Annotations.Request.Accepted {
		return // it was asked, and said yes: see accepts
	}
	gives := p.s.Why == core.HandingOver || p.s.Why == core.Yielding
	if s := p.base.snap; gives && s.Strategy && s.Preferred != "" && s.Preferred != p.id && s.Record.Holder == p.id {
		if p.seen.paused(p.now().Mono) {
			w.violate(Orders, "%v gives way to %q although an operator holds it", p, s.Preferred)
		}
		return // a coordinator prefers another
	}
	now := p.n.clocks.moment(w.now)
	// A clock that was set back and ahead again can have ended the newer cover, and not the older one. That which ends
	// first counts: it could be a machine that has slept.
	if left := min(p.gate.Left(now), p.ackedSent.Plus(p.cfg.Validity).Left(now)); left > 0 {
		w.violate(StepDown, "%v gives up (%s) %v before its cover ends; nobody has touched its record", p, p.s.Why, left)
		return
	}
	hangs := p.call != nil && w.now.since(p.call.sentAt) > slow
	if p.troubledAt < p.ackedAt && !hangs {
		w.violate(StepDown, "%v gives up (%s), and nothing kept it from renewing", p, p.s.Why)
	}
}

// slow is a call that may explain why a leader could not renew.
const slow = time.Second

// answered is called when p is about to learn how a call ended.
func (c *checks) answered(p *process, call *call, result core.Result, v view) {
	now := c.w.now
	if result == core.Unknown && p.hit(kindOf(call.op)) == nil || now.since(call.sentAt) > slow {
		p.troubledAt = now
	}
	if result == core.Conflict && call.op != core.Read && p.hit(reads) != nil {
		p.troubledAt = now // somebody has labelled the lock, and nothing shows which version that made
	}
	if kindOf(call.op) == writes {
		if result != core.OK && !p.refused {
			p.refusedAt = call.sentAt
		}
		p.refused = result != core.OK
	}
	if result != core.OK || call.op == core.Read || v.snap.Version == call.base.Version {
		return
	}
	p.ackedSent, p.ackedAt, p.anyAck = call.sent, call.sentAt, true
	p.ackedVersion = position{v.history, v.snap.Version}
	if call.op == core.Acquire {
		p.acked = v.term
	}
	if call.op == core.Acquire || call.op == core.Renew {
		p.newestStamp = call.record.Renewed
	}
}
