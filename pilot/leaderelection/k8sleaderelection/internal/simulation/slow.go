package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// slowness is how late an API server answers in one run, and how many connections to it die.
type slowness struct {
	there, back time.Duration // added to each way of a call
	watch       time.Duration // added to each watch event
	random      bool          // each way takes a random time below these
	// steady: nothing but the ends of processes disturbs the run. The delays are constant and do not end with the faults, so no
	// leader may lose its term.
	steady bool
	// ended: before the first term, an end was demanded of the only process, or of a process that had acquired the lock or was acquiring it.
	// The first term then begins after the next start, a release or a lease.
	ended bool
}

// total returns how late an answer is.
func (s slowness) total() time.Duration { return s.there + s.back }

// beSlow selects the delays of the run. In a steady run without dead connections, an answer needs less than half of RenewDeadline.
func (w *world) beSlow() {
	m := w.mode
	if !m.Slow {
		return
	}
	w.slow.steady = m.steady()
	most := w.timing.validity
	switch {
	case w.slow.steady && m.Deaths > 0:
		// A write on a connection without answers needs a second attempt, the wait for the first answer, and a read.
		most = w.timing.validity / 10
	case w.slow.steady:
		most = w.timing.validity * 47 / 100 // for the fastest clock
	default:
		w.slow.random = w.rng.IntN(2) == 0
	}
	total := w.within(most)
	switch w.rng.IntN(3) {
	case 0:
		w.slow.back = total
	case 1:
		w.slow.there, w.slow.back = total/2, total/2
	case 2:
		w.slow.there = total
	}
	if w.rng.IntN(2) == 0 {
		w.slow.watch = total
	}
}

// steady reports whether the only faults are slow answers, dead connections, forbidden watches, and ends and starts of processes.
func (m Mode) steady() bool {
	m.Deaths, m.Stops, m.Slow, m.LateStart, m.Forbidden = 0, 0, false, 0, 0
	return m == Mode{Name: m.Name}
}

// delay returns how late one way of a call or a watch event is.
func (w *world) delay(most time.Duration) time.Duration {
	switch {
	case most == 0 || !w.slow.steady && !w.faulty():
		return 0
	case w.slow.random:
		return w.within(most)
	}
	return most
}

// checkFirstTerm checks when a steady election begins.
func (w *world) checkFirstTerm(start Time) {
	total := w.slow.total()
	if w.mode.Deaths > 0 {
		total = total*3 + apirequest.LeastDelay // of each call, the first attempt may be lost
	}
	w.at(start.add(total*5/2+time.Second), func() {
		if w.result.Terms == 0 && !w.slow.ended {
			w.violate(SlowNotDead, "no leader %v after the start, and an answer needs %v", w.now.since(start), w.slow.total())
		}
	})
}

// endsBeforeFirstTerm notes that a fault ends the process of a node.
func (w *world) endsBeforeFirstTerm(n *node) {
	p := n.root().p
	only := !slices.ContainsFunc(w.nodes, func(o *node) bool { return o != n.root() && o.p != nil })
	if w.result.Terms == 0 && p != nil && (only || w.store.now.snap.Record.Holder == p.id || p.call != nil && p.call.op == core.Acquire) {
		w.slow.ended = true
	}
}

// line is a connection of a node to the API server.
type line struct {
	deadUntil Time
	deaf      bool // requests still arrive
}

// killLine makes a connection of a node dead for a while. The other one works, also for the calls that began before.
func (w *world) killLine() {
	n := w.some()
	if n.kind != nil || slices.ContainsFunc(n.lines[:], func(l line) bool { return l.deadUntil > 0 && l.deadUntil.add(w.timing.validity) >= w.now }) {
		return
	}
	i := w.rng.IntN(len(n.lines))
	n.lines[i] = line{deadUntil: w.now.add(w.within(4 * w.timing.lease)), deaf: w.rng.IntN(2) == 0}
	w.tracef("%s: connection %d is dead until %v, deaf: %v", n.name, i, n.lines[i].deadUntil, n.lines[i].deaf)
}

// attempt sends the call, and sends it once more over another connection if it is not answered in the usual time.
func (p *process) attempt(c *call, until core.Instant) {
	w, n := p.w, p.n
	c.attempts++
	began, line := w.now, (n.line+c.attempts-1)%len(n.lines)
	answer := func(result core.Result, v *view) { p.attempted(c, line, began, result, v) }
	if c.attempts == 1 {
		w.after(apirequest.SecondAfter(slices.Max(p.took[:]), c.sent.Mono.Until(until)), func() {
			n.run(func() {
				if p.call == c && !p.ended {
					w.tracef("%v: second attempt of %s", p, c.op)
					p.attempt(c, until)
				}
			})
		})
	}
	there := w.latency(p.cfg.Validity/2) + w.delay(w.slow.there)
	dead := w.now <= n.lines[line].deadUntil
	if w.lost() || dead && !n.lines[line].deaf {
		return
	}
	w.after(there, func() {
		p.arrive(c, func(late time.Duration, result core.Result, v *view) {
			if w.now > n.lines[line].deadUntil {
				w.after(late, func() { answer(result, v) })
			}
		})
	})
}

// attempted handles the answer of an attempt. If the call was sent twice, a rejection may be caused by the other attempt. It
// counts only if both were rejected.
func (p *process) attempted(c *call, line int, began Time, result core.Result, v *view) {
	if p.call != c {
		return
	}
	w := p.w
	rejected := result == core.Conflict || result == core.Refused
	took := w.now.since(began)
	if result == core.OK || rejected {
		p.took[p.attempts%len(p.took)] = took
		p.attempts++
		p.n.line = line
	}
	switch {
	case result == core.OK || c.attempts == 1:
		p.answer(c, result, v)
	case c.answered:
		if rejected != c.rejected {
			result = core.Unknown
		}
		p.answer(c, result, v)
	default:
		c.answered, c.rejected = true, rejected
		if rejected {
			w.after(took, func() { p.answer(c, w.ofOne(result), nil) })
		}
	}
}

// ofOne returns the result of a call that was sent twice, if only one attempt was answered, with a rejection.
func (w *world) ofOne(result core.Result) core.Result {
	if w.Bug != nil && w.Bug.Name == "second-conflict-counts" {
		return result
	}
	return core.Unknown
}

// slowBugs treat a slow API server as a dead one, or count a late answer wrongly.
var slowBugs = []Bug{
	{"short-limit", "slow", SlowNotDead, after(func(x *decision) {
		limit := (x.c.Validity - x.c.Retry) / 2
		x.s.Flight.Until = min(x.s.Flight.Until, x.s.Flight.Sent.Mono.After(limit))
		x.a.Until = min(x.a.Until, x.s.Flight.Until)
	})},
	{"renewal-due-from-reply", "slow", SlowNotDead, after(func(x *decision) {
		if x.s.Own.Renewed > x.old.Own.Renewed && x.in.Kind == core.Replied && x.s.Phase == core.Leading {
			x.s.Own.Renewed = x.in.Now.Mono
			x.a.Op, x.a.Wake, x.s.Flight = core.NoOp, x.in.Now.Mono.After(x.c.Retry), core.Call{}
		}
	})},
	{"validity-from-sight", "slow-dead", Validity, after(func(x *decision) {
		seen := x.in.Kind == core.Seen || x.in.Kind == core.Replied && x.old.Flight.Op == core.Read
		if seen && x.s.Own.Renewed > x.old.Own.Renewed && x.s.Validity != (core.Validity{}) {
			if x.s.Validity = x.in.Now.Plus(x.c.Validity); x.a.Gate != (core.Validity{}) {
				x.a.Gate = x.s.Validity
			}
		}
	})},
	{"leads-after-late-answer", "slow-bad", SlowNotDead, after(func(x *decision) {
		if x.s.Phase == core.Settling && x.s.Marked && x.s.Validity.Left(x.in.Now) > 0 {
			x.s.Phase = core.Leading
			x.a.Run, x.a.Gate, x.s.Running = true, x.s.Validity, true
		}
	})},
	{"ignores-stored-renewal", "slow-dead", SlowNotDead, before(func(x *decision) { x.s.Own.SentAt = core.ClockReading{} })},
	// See also ofOne: after a conflict of the second attempt, the write counts as not stored.
	{"second-conflict-counts", "slow-dead", SlowNotDead, before(func(x *decision) {
		if x.in.Kind == core.Replied && x.in.Result == core.Conflict && x.s.Flight.Op == core.Renew {
			own := &x.s.Own
			own.Writes = [4]core.Write{own.Writes[1], own.Writes[2], own.Writes[3]}
		}
	})},
}
