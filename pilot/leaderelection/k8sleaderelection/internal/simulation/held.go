package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A held process campaigns for two locks, as an election of package leaderelection with a held predecessor. The second lock has a
// world of its own: with its store, its checks, and a node for each held node. Both worlds have one time. The nodes of a process have
// the same clocks, pauses, and end. The other processes of the outer world use only the first lock, the others of the inner world
// only the second. They never run together.

// heldBugs are defects of the composition. They do not change Step.
var heldBugs = []Bug{
	{"held-never-starts", "held-bad", Prompt, nil},
	{"held-drained-early", "held", OneAtATime, nil},
	{"held-not-barred", "held-bad", OneAtATime, nil},
	{"held-gate-ignores-outer", "held-bad", Validity, nil},
	{"held-bar-ignored", "held", Prompt, before(func(x *decision) { x.s.Barred = false })},
	{"held-settling-acts", "held-bad", Settling, before(func(x *decision) {
		if x.s.Barred {
			x.s.Earlier.Until, x.s.Earlier.Former = 0, 0
		}
	})},
}

func (w *world) hasHeld(bug string) bool { return w.Bug != nil && w.Bug.Name == "held-"+bug }

func (w *world) root() *world {
	if w.outer != nil {
		return w.outer
	}
	return w
}

// root returns the node of the first lock.
func (n *node) root() *node {
	if n.outer != nil {
		return n.outer
	}
	return n
}

// addInner creates the world of the second lock.
func (w *world) addInner() {
	if w.mode.Held == 0 {
		return
	}
	m := w.mode
	m.Peers, m.Flips, m.Stops, m.Pauses, m.Unfits, m.Held = 0, 0, 0, 0, 0, 0
	in := &world{Options: w.Options, rng: rand.New(rand.NewPCG(w.Seed, 0x68656c64)), mode: m, outer: w, timing: w.timing, syncWait: w.syncWait, refuses: w.refuses}
	w.inner = in
	in.result.Mode = w.mode.Name
	in.calm, in.rest, in.end = w.calm, w.rest.add(w.timing.bound()), w.end.add(w.timing.bound())
	w.end = in.end
	in.store.w, in.checks.w = in, in
	in.checks.handovers.left, in.checks.nominations.left = handoverBudget, handoverBudget
	in.defaultRevision = w.defaultRevision
	for i, n := range w.nodes {
		if n.kind == nil && (i == 0 || w.chance(w.mode.Held)) {
			n.inner = in.newNode()
			n.inner.name, n.inner.key, n.inner.clocks, n.inner.outer = n.name, n.key, n.clocks, n
		}
	}
	for i := range w.mode.NewOnly {
		n := in.newNode()
		n.name = "new-" + string(rune('a'+i))
		in.after(w.within(w.timing.faults/2), n.start)
		in.after(w.timing.faults/2+w.within(w.timing.faults/2), func() {
			n.stop()
			in.restartLater(n, w.within(20*time.Second))
		})
	}
	in.planFaults()
	in.at(in.calm, in.beginCalm)
	in.at(in.rest, in.checkSettled)
}

func (w *world) addInnerResult() {
	if in := w.inner; in != nil {
		w.result.Steps += in.result.Steps
		w.result.Terms += in.result.Terms
		w.result.Violations = append(w.result.Violations, in.result.Violations...)
		in.result.Violations = nil
	}
}

// outside returns the process of the first lock, or nil.
func (p *process) outside() *process {
	if p.n.outer == nil {
		return nil
	}
	return p.n.outer.p
}

// outsideEnded reports whether the validity of the first lock has ended, which its process may not have seen yet.
func (p *process) outsideEnded() bool {
	o := p.outside()
	return o != nil && o.n.clocks.left(o.gate, p.w.now) <= 0
}

// openUntil is the gate of the run functions.
func (p *process) openUntil() core.Validity {
	if p.n.outer == nil || p.w.hasHeld("gate-ignores-outer") {
		return p.gate
	}
	o := p.outside()
	if o == nil {
		return core.Validity{}
	}
	return core.Validity{Mono: min(p.gate.Mono, o.gate.Mono), Boot: min(p.gate.Boot, o.gate.Boot), Wall: min(p.gate.Wall, o.gate.Wall)}
}

// setCampaign is setWork of the outer process: its run function lets the inner process campaign.
func (p *process) setCampaign(a core.Action) {
	in := p.n.inner.p
	switch {
	case a.Run && !p.work:
		p.startWork()
		p.releaseBy, p.over, p.leaves = 0, false, false
		p.bar(false)
	case !a.Run && p.work:
		p.work = false
		p.w.checks.leaderChanged()
		if !p.w.hasHeld("not-barred") {
			p.bar(true)
		}
		if p.w.hasHeld("drained-early") || in == nil {
			p.campaignEnds()
		}
	}
	if in == nil {
		return
	}
	if a.Gate != (core.Validity{}) {
		in.continues()
		return
	}
	if in.alive && in.n.clocks.left(in.openUntil(), p.w.now) > 0 {
		p.w.violate(Validity, "the gate of %v is open outside the validity of the first lock", in)
	}
	// The drain limit of the lost outer term counts.
	if limit := p.cfg.DrainLimit * 8 / 10; in.alive && !in.work && in.returnAt > p.w.now.add(limit) {
		in.planReturn(p.w.within(limit))
	}
}

// continues starts the run functions that wait for a validity of the first lock: its renewal was stored, and that is seen late.
func (p *process) continues() {
	if p.waits && !p.outsideEnded() && !p.w.hasHeld("never-starts") {
		p.waits = false
		p.startWork()
	}
}

// bar bars the inner process, or ends that. Its loop receives it a moment later.
func (p *process) bar(barred bool) {
	in := p.n.inner.p
	if in != nil {
		in.told, in.bars = false, barred
	}
	p.w.after(time.Millisecond, func() {
		p.n.run(func() {
			if in != nil && !in.ended {
				in.receiveBar(barred)
			}
		})
	})
}

func (p *process) receiveBar(barred bool) {
	p.told, p.barred = true, barred
	p.stopAsked = p.stopAsked || barred
	p.w.happened(2)
	p.input(core.Input{Kind: core.Bar, Barred: barred}, view{})
}

// leave ends the campaign of the outer process with an error, because a run function failed, or the store rejects the acquisition or
// the reads of the inner lock.
func (p *process) leave() {
	if o := p.outside(); o != nil && o.work && !o.leaves {
		o.leaves = true
		o.bar(true)
	}
}

// innerChanged ends the campaign when the inner process is idle. While the outer lock can be released, it waits for the release of the
// inner lock.
func (p *process) innerChanged() {
	o := p.outside()
	if o == nil || p.ended || o.ended || o.work && !o.leaves || !o.alive || !p.barred || p.alive || p.work {
		return
	}
	if o.releaseBy == 0 {
		o.releaseBy = p.w.now.add(p.cfg.Validity / 2)
		p.w.at(o.releaseBy, func() { p.n.run(p.innerChanged) })
	}
	if p.s.Phase != core.Following && o.gate != (core.Validity{}) && p.w.now < o.releaseBy {
		return
	}
	if o.work {
		o.leaves, o.stopAsked = false, true
		o.input(core.Input{Kind: core.StepDown}, view{})
		return
	}
	o.campaignEnds()
}

func (p *process) campaignEnds() {
	p.returns++
	p.over = true
	turn := p.returns
	p.w.after(0, func() {
		p.n.run(func() {
			if p.returns == turn && !p.ended && p.alive && !p.work {
				p.campaignEnded()
			}
		})
	})
}

func (p *process) campaignEnded() {
	p.alive, p.acting, p.over = false, nil, false
	p.w.checks.busyAt = p.w.now
	p.input(core.Input{Kind: core.Drained}, view{})
}

// startInside checks that a held process leads only in a term of the first lock.
func (c *checks) startInside(p *process) {
	if p.n.outer == nil {
		return
	}
	if o := p.outside(); o == nil || !o.alive {
		c.w.violate(OneAtATime, "%v starts outside a term of the first lock", p)
	}
	for _, q := range c.w.outer.procs { // of the first lock only
		if o := p.outside(); o != nil && q.n.inner == nil && q.mayAct() && !q.duplicated() && !o.unknowable(q) && !q.unknowableTerm(o.acked) {
			c.w.violate(OneAtATime, "%v starts while %v may act", p, q)
		}
	}
}

// checkInside is checkSettled of the second lock: a process leads by one of the locks.
func (w *world) checkInside() {
	for _, n := range append(w.nodes, w.outer.nodes...) {
		if n.inner == nil && n.leads() {
			return
		}
	}
	if w.anyProcess() || w.outer.anyProcess() {
		w.violate(Prompt, "no process leads by one of the two locks %v after the calm began", w.now.since(w.calm))
	}
}

// composition is the part of a process with two locks that an exploration waits for.
type composition struct {
	told      bool // the inner process has received the latest bar
	bars      bool // that one
	over      bool // the campaign of the outer process has ended
	leaves    bool // the campaign of the outer process ends with an error
	unstarted bool // run functions that have not started will return
}

// heldMoves are the choices of an exploration with second locks.
var heldMoves = []move{
	{name: "bar", count: if1(func(p *process) bool { return p.outside() != nil && !p.told }), do: once(func(p *process) { p.receiveBar(p.bars) })},
	{name: "campaign ends", count: if1(func(p *process) bool { return p.over && p.alive && !p.work }), do: once((*process).campaignEnded)},
	{name: "release is late", count: if1((*process).releaseIsLate), do: once((*process).innerChanged)},
	{name: "work never starts", count: if1(func(p *process) bool { return p.unstarted }), do: once((*process).returned)},
}

// releaseIsLate reports whether the outer process waits no longer for the release of the inner lock.
func (p *process) releaseIsLate() bool {
	o := p.outside()
	return o != nil && !o.work && o.alive && !o.over && p.barred && !p.alive && !p.work && o.releaseBy != 0 && o.releaseBy <= p.w.now
}

// smallInner returns the world of the second lock of an exploration.
func (w *world) smallInner() *world {
	m := w.mode
	m.Peers = 0
	in := &world{Options: w.Options, rng: noRandom, mode: m, outer: w, timing: w.timing, forgery: w.forgery, defaultRevision: w.defaultRevision, now: w.now}
	in.choosing = w.choosing
	in.calm, in.rest, in.end = w.calm, w.rest, w.end
	in.store.w, in.checks.w = in, in
	in.store.version = 1 << 40 // above all versions of the first lock
	return in
}

// useSecondLock adds the second lock to a node. A node of the new version uses only that one.
func (n *node) useSecondLock(only bool) {
	n.inner = n.w.inner.newNode()
	n.inner.name, n.inner.key, n.inner.clocks = n.name, n.key, n.clocks
	if n.retired = only; only {
		n.inner.start()
	} else {
		n.inner.outer = n
	}
}

// continueInner is the beginning of continueCalmly for the second lock, which has a longer bound.
func (w *world) continueInner() {
	in := w.inner
	in.choosing.on = false
	in.rng, in.calm = w.rng, w.calm
	in.rest = w.rest.add(w.timing.bound())
	in.end = w.end.add(w.timing.bound())
	w.end = in.end
	in.at(in.calm, in.beginCalm)
	in.at(in.rest, in.checkSettled)
}

// place returns the node of a choice.
func (w *world) place(c choice) *node {
	if c.inner {
		return w.nodes[c.node].inner
	}
	return w.nodes[c.node]
}

// allNodes returns the nodes of both locks.
func (w *world) allNodes() []*node {
	if w.inner == nil {
		return w.nodes
	}
	return slices.Concat(w.nodes, w.inner.nodes)
}

// changes returns a number that changes with each lock.
func (w *world) changes() uint64 {
	n := w.store.now.snap.Version
	if w.inner != nil {
		n += w.inner.store.now.snap.Version
	}
	return n
}

// continueComposition lets the campaign of a process continue without choices.
func (p *process) continueComposition() {
	w := p.w
	if p.outside() != nil && !p.told {
		w.after(time.Millisecond, func() { p.receiveBar(p.bars) })
	}
	if p.over {
		p.campaignEnds()
	}
	if p.unstarted {
		p.planReturn(0)
	}
	if o := p.outside(); o != nil && o.releaseBy != 0 {
		w.at(o.releaseBy, p.innerChanged)
	}
}
