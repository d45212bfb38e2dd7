package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// openWatch opens the watch of a process. With gap, changes may have been missed. Without, the present state
// follows as an event.
func (p *process) openWatch(gap bool) {
	if p.ended || p.forbidden || p.watching {
		return
	}
	if (p.down() || p.hit(watches) != nil) && p.w.faulty() {
		p.w.after(p.w.within(time.Second), func() { p.openWatch(true) })
		return
	}
	p.cut = false
	p.watching, p.shown = true, p.w.store.now.snap.Version
	p.watch++
	p.n.runWatch(func() { p.input(core.Input{Kind: core.Watching, Gap: gap}, view{}) })
	if !gap && p.w.store.now.snap.Version != 0 {
		v := p.w.store.now
		p.show(&v, p.watch)
	}
}

// closeWatch breaks the watch and opens it again after d.
func (p *process) closeWatch(d time.Duration) {
	if p.ended || !p.watching {
		return
	}
	p.watching = false
	p.watch++
	p.n.runWatch(func() { p.input(core.Input{Kind: core.Unwatched}, view{}) })
	gap := p.w.rng.IntN(4) > 0
	p.w.after(d, func() { p.openWatch(gap) })
}

// notify sends a change to all watchers. Events can overtake each other or get lost.
func (w *world) notify(v *view) {
	w.notifyCoordinators(v)
	for _, n := range w.nodes {
		p := n.p
		if p == nil || !p.watching {
			continue
		}
		if w.faulty() && w.chance(w.mode.Drop) {
			w.tracef("  %v is not shown %d", p, v.snap.Version)
			continue
		}
		p.show(v, p.watch)
	}
}

func (p *process) show(v *view, watch int) {
	w := p.w
	late := time.Millisecond + w.within(10*time.Millisecond)
	if w.faulty() && w.chance(w.mode.Late) {
		late = w.within(8 * time.Second)
	}
	if w.faulty() {
		late += p.lag
	}
	late += w.delay(w.slow.watch)
	if late > p.cfg.Retry {
		p.lateUntil = max(p.lateUntil, w.now.add(late))
	}
	w.after(late, func() {
		if p.watch != watch {
			return
		}
		p.n.runWatch(func() { p.input(core.Input{Kind: core.Seen, Snap: v.snap}, *v) })
	})
}
