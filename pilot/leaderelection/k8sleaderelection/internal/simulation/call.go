package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// call is one request on its way. It may reach the store, and change it, long after
// its sender has given up on it, or has died.
type call struct {
	p         *process
	op        core.Op
	base      core.Snapshot
	record    core.Record
	notes     core.Annotations
	sent      core.ClockReading
	sentAt    Time
	foreign   uint64        // what the write carries of others' metadata
	after     time.Duration // a refusal's Retry-After
	decidedOn uint64        // the version, also when the guard was lost
}

// unguardedVersion is the base of a write that a planted bug sends without a guard.
const unguardedVersion = ^uint64(0)

// refused is how long it takes until a connection is refused.
const refused = 5 * time.Millisecond

// latency is a call's way there or back: mostly milliseconds, at times beyond any
// deadline.
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

// lost reports whether a request or reply never arrives.
func (w *world) lost() bool { return w.faulty() && w.chance(w.mode.Net/2) }

func (p *process) down() bool { return p.w.now < p.w.apiDown || p.w.now < p.n.apiDown }

// send starts the call. Whatever becomes of it, it is answered exactly once.
func (p *process) send(a core.Action) {
	w := p.w
	c := &call{p: p, op: a.Op, base: a.Base, record: a.Record, notes: a.Annotations, sent: p.now(), sentAt: w.now, decidedOn: p.base.snap.Version}
	p.call = c
	w.checks.send(p, c)
	deadline := p.n.clocks.when(c.sent.Mono.After(p.cfg.CallTimeout))
	w.at(deadline, func() { p.answer(c, core.Unknown, view{}) })
	there := w.latency(p.cfg.CallTimeout)
	if w.lost() {
		return
	}
	w.after(there, func() { p.arrive(c) })
}

// arrive is when the request reaches the store, or what is left of it.
func (p *process) arrive(c *call) {
	w := p.w
	if p.down() {
		if w.chance(w.refuses) {
			w.after(refused, func() {
				p.troubledAt = w.now // a spell may refuse writes at the same time; it is not that which kept this one
				p.answer(c, core.Unknown, view{})
			})
		}
		return
	}
	if s := p.hit(kindOf(c.op)); s != nil {
		c.after = s.after
		w.after(w.latency(p.cfg.CallTimeout), func() {
			if s.kind == writes {
				p.troubledAt = w.now
			}
			p.answer(c, s.result, view{})
		})
		return
	}
	result, v := core.OK, w.store.now
	if c.op != core.Read {
		result, v = w.store.write(c)
		w.tracef("  the store: %s by %v on %d: %v %s", c.op, p, c.base.Version, result, shown(v.snap))
	} else if !v.snap.Exists {
		v.snap.Version = 0 // an absent object has none to tell
	}
	back := w.latency(p.cfg.CallTimeout)
	if w.lost() {
		return
	}
	if w.faulty() && w.chance(w.mode.Net/8) {
		result = core.Unknown // a proxy's 502
	}
	w.after(back, func() { p.answer(c, result, v) })
}

// answer ends the call for its sender, the first time.
func (p *process) answer(c *call, result core.Result, v view) {
	p.n.run(func() {
		if p.call != c || p.ended {
			return
		}
		p.call, p.askedAt = nil, c.sentAt
		p.w.checks.answered(p, c, result, v)
		in := core.Input{Kind: core.Replied, Result: result, RetryAfter: c.after}
		if result == core.OK {
			in.Snap = v.snap
		}
		p.input(in, v)
	})
}
