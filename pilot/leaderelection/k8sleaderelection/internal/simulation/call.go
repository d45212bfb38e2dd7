package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// call is one request. It may reach the store after its sender has timed out or died.
type call struct {
	p           *process
	op          core.Op
	base        core.Snapshot
	record      core.Record
	annotations core.Annotations
	unprefer    bool
	sent        core.ClockReading
	sentAt      Time
	firstSent   core.ClockReading // of the first call with the same record
	foreign     uint64            // metadata of others that the write carries
	after       time.Duration     // Retry-After of a refusal
	decidedOn   uint64            // version, also without a guard
	attempts    int
	answered    bool // one of two attempts
	rejected    bool // that one
	travel
}

// unguardedVersion is the base of a write that a planted bug sends without a guard.
const unguardedVersion = ^uint64(0)

// refused is the time until a connection is refused.
const refused = 5 * time.Millisecond

// latency returns the duration of one way of a call: mostly milliseconds, sometimes longer than its deadline.
func (w *world) latency(timeout time.Duration) time.Duration {
	if w.faulty() && w.chance(w.mode.Net) {
		switch w.rng.IntN(3) {
		case 0:
			return w.within(time.Second)
		case 1:
			return w.within(2 * timeout)
		}
		return w.within(20 * time.Second)
	}
	return 500*time.Microsecond + w.within(20*time.Millisecond)
}

func (w *world) lost() bool { return w.faulty() && w.chance(w.mode.Net/2) }

func (p *process) down() bool { return p.w.now < p.w.apiDown || p.w.now < p.n.apiDown }

// send starts the call. It is answered exactly once.
func (p *process) send(a core.Action) {
	w := p.w
	c := &call{p: p, op: a.Op, base: a.Base, record: a.Record, annotations: a.Annotations, unprefer: a.Unprefer, sent: p.now(), sentAt: w.now, decidedOn: p.base.snap.Version}
	p.call = c
	if w.choosing.on {
		p.n.flying = append(p.n.flying, c)
	}
	w.checks.send(p, c)
	w.at(p.n.clocks.when(a.Until), func() { p.cancel(c) })
	p.attempt(c, a.Until)
}

// arrive handles a request at the store. It passes the answer on, and how late it is.
func (p *process) arrive(c *call, reply func(late time.Duration, result core.Result, v *view)) {
	w := p.w
	if p.down() {
		if w.chance(w.refuses) {
			p.troubledAt = w.now // an unreachable store, not a spell, delays this call
			reply(refused, core.Unknown, nil)
		}
		return
	}
	if s := p.hit(kindOf(c.op)); s != nil {
		c.after = s.after
		if s.kind == writes {
			p.troubledAt = w.now
		}
		reply(w.latency(p.cfg.Validity/2)+w.delay(w.slow.back), s.result, nil)
		return
	}
	result, v := w.serve(c)
	back := w.latency(p.cfg.Validity/2) + w.delay(w.slow.back)
	if w.lost() || w.now < p.n.muted {
		return
	}
	if w.faulty() && w.chance(w.mode.Net/8) {
		result = core.Unknown // 502 of a proxy
	}
	reply(back, result, &v)
}

// serve returns the answer of the store.
func (w *world) serve(c *call) (core.Result, view) {
	v := w.store.now
	if c.op == core.Read {
		if !v.snap.Exists {
			v.snap.Version = 0 // an absent object has no version
		}
		return core.OK, v
	}
	result, v := w.store.write(c)
	if w.Trace != nil {
		w.tracef("  the store: %s by %v on %d: %v %s", c.op, c.p, c.base.Version, result, shown(v.snap))
	}
	return result, v
}

// cancel ends the call because its answer is of no use any more.
func (p *process) cancel(c *call) { p.answer(c, core.Unknown, nil) }

// answer ends the call for its sender, the first time that it is called.
func (p *process) answer(c *call, result core.Result, shown *view) {
	p.n.run(func() {
		if p.call != c || p.ended {
			return
		}
		p.call, p.askedAt = nil, c.sentAt
		var v view
		if shown != nil {
			v = *shown
		}
		p.w.checks.answered(p, c, result, v)
		in := core.Input{Kind: core.Replied, Result: result, RetryAfter: c.after}
		if result == core.OK {
			in.Snap = v.snap
		}
		p.input(in, v)
	})
}
