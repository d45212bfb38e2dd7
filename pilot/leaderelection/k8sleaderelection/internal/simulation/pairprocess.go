package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// pairProcess is one life of a candidate that needs both objects, or one.
type pairProcess struct {
	w       *pairWorld
	id, key string
	both    bool
	poor    bool // it may not write the secondary
	asked   bool // it has asked a leader to hand over
	clocks  clocks
	cfg     core.Config
	step    stepper
	s       core.State
	sight   core.PairSight
	base    core.Pair // what the core's snapshot was made of

	gate        core.Cover
	work, alive bool
	ended       bool
	call        *pairCall
	timer       int
	returns     int
	away        Time // it does not reach the store before
	watching    bool
	watch       int
	heard       [2]Time // when the last event of each object is shown
}

// able reports whether the process can lead at all.
func (p *pairProcess) able() bool { return !p.poor || !p.both && p.w.single == core.Primary }

func (p *pairProcess) input(in core.Input, of core.Pair) {
	if p.ended {
		return
	}
	w := p.w
	in.Now, in.Jitter = p.clocks.moment(w.now), uint8(w.rng.Uint32())
	w.result.Steps++
	before := p.s
	var a core.Action
	p.s, a = p.step(p.cfg, p.s, in)
	if p.s.Learned != before.Learned {
		p.base = of
	}
	if w.Trace != nil {
		w.tracef("%-4s %-12v %v %s %s: %s, %s on %d", p.id, in.Kind, in.Result, shown(in.Snap), p.s.Phase, a.Why, a.Op, a.Base.Version)
	}
	p.apply(a)
	if p.s.Phase == core.Done {
		p.end("done: " + string(p.s.Why))
	}
}

func (p *pairProcess) end(why string) {
	if p.ended {
		return
	}
	p.w.tracef("%s ends: %s", p.id, why)
	p.ended, p.work, p.alive, p.gate = true, false, false, core.Cover{}
	p.w.procs = slices.DeleteFunc(p.w.procs, func(q *pairProcess) bool { return q == p })
}

func (p *pairProcess) apply(a core.Action) {
	p.gate = a.Gate
	switch {
	case a.Work && !p.work:
		p.startWork()
	case !a.Work && p.work:
		p.work = false
		p.returns++
		turn := p.returns
		p.w.after(p.w.within(p.cfg.DrainLimit/2), func() {
			if p.returns == turn && !p.ended {
				p.alive = false
				p.input(core.Input{Kind: core.Drained}, core.Pair{})
			}
		})
	}
	if a.Op != core.NoOp && p.call == nil {
		p.send(a)
	}
	p.timer++
	timer := p.timer
	if a.Wake != core.Never {
		p.w.at(p.clocks.when(a.Wake).add(p.w.within(time.Millisecond)), func() {
			if p.timer == timer {
				p.input(core.Input{Kind: core.Tick}, core.Pair{})
			}
		})
	}
}

// startWork starts the functions: nobody else's may run, and no other gate be open.
func (p *pairProcess) startWork() {
	w := p.w
	for _, q := range w.procs {
		if left := q.clocks.left(q.gate, w.now); q != p && (q.alive || q.gate != core.Cover{} && left > 0) {
			w.violate(OneAtATime, "%s starts while %s may act: functions %v, gate for %v", p.id, q.id, q.alive, left)
		}
	}
	w.tracef("%s works", p.id)
	p.work, p.alive = true, true
	w.result.Terms++
}

// openWatch brings the watch up, with the present state of each object.
func (p *pairProcess) openWatch() {
	if p.ended || p.watching {
		return
	}
	if p.w.now < p.away {
		p.w.at(p.away, p.openWatch)
		return
	}
	p.watching = true
	p.watch++
	p.input(core.Input{Kind: core.Watching, Gap: true}, core.Pair{})
	for h, s := range p.w.objects {
		if s.Exists {
			p.show(core.Half(h), s)
		}
	}
}

// closeWatch breaks the watch; it comes back after d.
func (p *pairProcess) closeWatch(d time.Duration) {
	if p.ended || !p.watching {
		return
	}
	p.watching = false
	p.watch++
	p.input(core.Input{Kind: core.Unwatched}, core.Pair{})
	p.w.after(d, p.openWatch)
}

// show delivers one watch event. The two objects are watched apart: the events of one
// keep their order.
func (p *pairProcess) show(h core.Half, s core.Snapshot) {
	w := p.w
	if !p.watching || !p.both && h != w.single {
		return
	}
	late := time.Millisecond + w.within(10*time.Millisecond)
	if w.faulty() && w.chance(w.mode.Late) {
		late = w.within(4 * time.Second)
	}
	p.heard[h] = max(p.heard[h]+1, w.now.add(late))
	watch := p.watch
	w.at(p.heard[h], func() {
		if p.watch != watch || p.ended {
			return
		}
		if !p.both {
			p.input(core.Input{Kind: core.Seen, Snap: s}, core.Pair{})
			return
		}
		p.sight, _ = w.rules.stored(p.sight, h, s)
		if p.sight.Shows(h, s) {
			p.seen(core.Input{Kind: core.Seen}, p.sight)
		}
	})
}

// seen is an input that shows both objects.
func (p *pairProcess) seen(in core.Input, v core.PairSight) {
	in.Snap = p.w.combined(v, p.id)
	p.input(in, v.Pair)
}
