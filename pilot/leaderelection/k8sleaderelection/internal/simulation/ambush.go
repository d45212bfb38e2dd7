package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// ambush is called after a step of a handover, or an acquisition of a candidate that settles, was stored. It sometimes causes a
// fault at that moment, or two within a RetryPeriod, which random faults rarely hit. If a user writes annotations in this mode, half of
// the ambushes are such a write and a fault at one side.
func (w *world) ambush(c *call) {
	if !w.faulty() || !w.chance(w.mode.Ambush) {
		return
	}
	leader, challenger := c.p.n, w.nodeOf(c.annotations.Request.Identity)
	switch {
	case c.op == core.SendRequest:
		leader, challenger = w.nodeOf(c.record.Holder), c.p.n
	case c.op == core.HandOver:
		challenger = w.nodeOf(c.record.Holder)
	case c.op == core.Acquire && !names(c.annotations.Marker, c.record):
		leader, challenger = w.nodeOf(c.base.Record.Holder), c.p.n
	case c.op == core.Renew && c.annotations.Request.Accepted && !c.base.Annotations.Request.Accepted:
	default:
		return
	}
	if leader == nil || challenger == nil {
		return
	}
	within := func(d time.Duration, fault func()) {
		w.after(w.within(d), func() {
			if w.faulty() {
				w.tracef("ambush after %s, of %s and %s", c.op, leader.name, challenger.name)
				fault()
			}
		})
	}
	attack := func() {
		w.oneOf(
			func() { w.strike(leader) },
			func() { w.strike(challenger) },
			func() { w.strike(challenger) },
			w.flip,
			w.meddle,
		)
	}
	if w.mode.Forgers > 0 && w.rng.IntN(2) == 0 {
		within(w.timing.retry, w.forge)
		within(w.timing.retry, func() { w.oneOf(func() { w.strike(leader) }, func() { w.strike(challenger) }) })
		return
	}
	within(w.timing.retry/4, attack)
	if w.rng.IntN(3) == 0 {
		within(w.timing.retry, attack)
	}
}

// strike causes a fault at one side of a handover.
func (w *world) strike(n *node) {
	again := w.within(2 * w.timing.retry)
	w.oneOf(
		func() {
			n.kill("killed in a handover")
			w.restartLater(n, again)
		},
		func() {
			n.stop()
			w.restartLater(n, again)
		},
		func() { n.pause(w.within(2*w.timing.lease), w.rng.IntN(2) == 0) },
		func() {
			d := w.within(w.timing.lease)
			n.apiDown = w.now.add(d)
			w.cutOff(n, d)
		},
		func() {
			if n.p != nil {
				n.p.closeWatch(w.within(2 * w.timing.lease))
			}
		},
		func() { n.drainsFor = w.within(3 * w.timing.lease) },
		func() { n.muted = w.now.add(w.within(2 * w.timing.retry)) },
	)
}

// meddle makes a change to the lock that is unrelated to the handover.
func (w *world) meddle() {
	if !w.store.now.snap.Exists {
		return
	}
	if !w.mode.Meddle {
		w.label()
		return
	}
	w.oneOf(w.label, w.deleteLock, w.emptyRecord, w.steal, w.forge)
	w.tracef("foreign edit: %s", shown(w.store.now.snap))
}

// nodeOf returns the node that runs, or ran, the newest process of that name.
func (w *world) nodeOf(name string) *node {
	for i := len(w.nodes) - 1; i >= 0; i-- {
		if n := w.nodes[i]; n.name == name && !n.retired {
			return n
		}
	}
	return nil
}
