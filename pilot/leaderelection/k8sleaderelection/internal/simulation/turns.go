package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A successor's process campaigns for the predecessor's lock only while it leads a lock of its own. The rest of the time it
// observes. Each turn is a run of its elector, which begins with what the one before has learned.

// turnSome has some successor's process observe for a while: it has lost its own lock.
func (w *world) turnSome() {
	n := w.some()
	if n.p == nil || !n.successor || n.p.observes {
		return
	}
	w.happened(1)
	n.p.turn(true)
	n.p.leadsLater(2 * w.timing.lease)
}

// beginObserving is how a process begins that does not lead its own lock yet.
func (p *process) beginObserving() {
	if p.cfg.Successor && p.w.mode.Turns > 0 && p.w.faulty() {
		p.observes, p.s.Unfit, p.seen.unfit = true, true, true
		p.leadsLater(p.w.timing.lease)
	}
}

func (p *process) leadsLater(most time.Duration) { p.w.after(p.w.within(most), p.leadsOwn) }

// leadsOwn: from now on it leads its own lock.
func (p *process) leadsOwn() {
	if p.observes && !p.ended {
		p.w.happened(1)
		p.turn(false)
	}
}

// turn ends the present run in order; the next one begins when it has ended.
func (p *process) turn(observes bool) {
	p.observes = observes
	p.n.run(func() {
		if p.ended || p.s.Stopping { // it begins its next run as it is meant to by then, or it ends
			return
		}
		p.w.tracef("%v: its turn ends", p)
		p.turns++
		p.turning, p.stopAsked = true, true
		p.input(core.Input{Kind: core.Stop}, view{})
	})
}

// nextTurn begins the next run.
func (p *process) nextTurn() {
	w := p.w
	w.tracef("%v begins anew, observes: %v", p, p.observes)
	p.turning = false
	p.s = p.s.Resumed()
	p.s.Unfit, p.seen.unfit = p.observes, p.observes
	p.startedAt = p.now().Mono
	p.watch++ // what the former watch had to tell is lost
	p.watching = false
	p.input(core.Input{Kind: core.DefaultChanged, Default: p.seen.defaultRevision}, view{})
	w.after(w.within(100*time.Millisecond), func() { p.openWatch(true) })
}
