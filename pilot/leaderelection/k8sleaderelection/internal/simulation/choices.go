package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// choosing is the part of a world that only an exploration has.
type choosing struct {
	on       bool // events are choices
	random   bool // in a choice with a random part
	bounds   *Bounds
	left     uint8     // faults: bit i is that of bounds.Faults[i]
	path     *path     // to this world
	recorded scenarios // of a replay; nil: not recorded
}

// path is the list of choices that led to a world, the latest first.
type path struct {
	choice
	before *path
}

// travel is the progress of a call in an exploration. It is first in the list of its node, and then served by the store.
type travel struct {
	served bool
	late   bool // time may pass before it arrives
	result core.Result
	reply  view
}

// schedule is the event or time that a process waits for in an exploration.
type schedule struct {
	wake, until core.Instant // of its latest action
	shown       uint64       // version that its watch has shown
	late        bool         // time may pass before its watch shows the next version, or opens
	slow        bool         // its run functions may return late
	conflicted  bool         // its latest renewal conflicted
}

// fault returns the place of a fault that is left, or -1.
func (c *choosing) fault(name string) int {
	for i, f := range c.bounds.Faults {
		if f == name && c.left>>i&1 == 1 {
			return i
		}
	}
	return -1
}

// tick is the step of time in an exploration. A timer in between is late.
const tick = time.Second

// move is a kind of choice at a node. A choice can have variants.
type move struct {
	name  string
	when  moment
	count func(n *node) int
	do    func(n *node, variant int)
	waits func(n *node) bool // optional: whether time may pass before it
	// effect is the strongest effect of a move that is possible before time passes.
	effect effect
	// machine: a process with two locks has the move only once.
	machine bool
}

// moment is when a move is possible.
type moment uint8

const (
	soon   moment = iota // before time passes
	atRest               // directly before time passes, or never
	fault                // always; it costs a fault of the budget
)

// choice is a move at a node. The passing of time is the move -1.
type choice struct {
	move, node, variant int8
	inner               bool // of the second lock
}

func may(is bool) int {
	if is {
		return 1
	}
	return 0
}

// awake returns the process of the node if it runs.
func (n *node) awake() *process {
	if n.paused {
		return nil
	}
	return n.p
}

// if1 is a count for moves of a running process.
func if1(is func(p *process) bool) func(*node) int {
	return func(n *node) int {
		p := n.awake()
		return may(p != nil && is(p))
	}
}

// once is a move of a process.
func once(do func(p *process)) func(*node, int) { return func(n *node, _ int) { do(n.p) } }

func (p *process) due(at core.Instant) bool { return at <= p.now().Mono }

// hasReply reports whether an answer is on its way to the process.
func (p *process) hasReply() bool { return p.call != nil && p.call.served }

// behind reports whether the watch has a change for the process.
func (p *process) behind() bool { return p.watching && p.shown < p.w.store.now.snap.Version }

// reply passes the answer on.
func (p *process) reply(c *call) {
	var v *view
	if c.result == core.OK {
		v = &c.reply
	}
	p.answer(c, c.result, v)
	conflicts := c.op == core.Renew && c.result == core.Conflict
	if conflicts && p.conflicted {
		p.n.hinder(c) // its pause, a part of a RetryPeriod, ends with the tick
	}
	if c.op == core.Renew || c.op == core.Acquire {
		p.conflicted = conflicts
	}
}

func (p *process) see() {
	v := p.w.store.now
	p.shown, p.late = v.snap.Version, false
	p.input(core.Input{Kind: core.Seen, Snap: v.snap}, v)
}

func (p *process) returned() {
	p.writing, p.slow = false, false
	p.drained()
}

// takeOff removes a call that travels.
func (n *node) takeOff(i int) *call {
	c := n.flying[i]
	flying := append([]*call(nil), n.flying[:i]...)
	n.flying = append(flying, n.flying[i+1:]...)
	return c
}

func (n *node) serve(i int) {
	c := n.takeOff(i)
	c.result, c.reply = n.w.serve(c)
	c.served, c.late = true, false
}

// anyCall reports whether is is true for a call that travels.
func (n *node) allCalls(is func(*call) bool) bool {
	for _, c := range n.flying {
		if !is(c) {
			return false
		}
	}
	return true
}

// testament returns the ended processes of the node with a term that its witness releases.
func (n *node) testament() *process {
	for _, p := range n.w.procs {
		if p.n == n && p.ended && p.registered != (core.EndedTerm{}) && n.w.left(p.registered, n.w.store.now.snap) == core.HolderDied {
			return p
		}
	}
	return nil
}

// turn returns the peer of the node if its next turn is due.
func (n *node) turn() *peer {
	if n.q == nil || n.paused || n.q.due > n.q.mono() {
		return nil
	}
	return n.q
}

// playHindered is the turn of a peer with a fault of its first call.
func (n *node) playHindered(h hindrance) {
	n.q.hindrance = h
	n.q.play()
	if n.q != nil {
		n.q.hindrance = 0
	}
}

func (n *node) first() bool { return n == n.w.nodes[0] }

// moves are the choices of an exploration, apart from the passing of time.
var moves = slices.Concat(nodeMoves, coordinatorMoves, heldMoves)

// nodeMoves are choices in each world.
var nodeMoves = []move{
	{name: "store", effect: changes, count: func(n *node) int { return len(n.flying) }, do: (*node).serve, waits: func(n *node) bool {
		return n.allCalls(func(c *call) bool { return c.late })
	}},
	{name: "answer", count: if1((*process).hasReply), do: once(func(p *process) { p.reply(p.call) }), waits: func(n *node) bool { return n.p.call.late }},
	{name: "watch event", effect: looks, count: if1((*process).behind), do: once((*process).see), waits: func(n *node) bool { return n.p.late }},
	{name: "watch opens", effect: looks, count: if1(func(p *process) bool { return !p.watching }), do: once(func(p *process) {
		p.late = false
		p.openWatch(true)
	}), waits: func(n *node) bool { return n.p.late }},
	{name: "default", count: if1(func(p *process) bool { return p.seen.defaultRevision != p.w.defaultRevision }), do: once(func(p *process) {
		p.input(core.Input{Kind: core.DefaultChanged, Default: p.w.defaultRevision}, view{})
	})},
	{name: "timer", count: if1(func(p *process) bool { return p.due(p.wake) }), do: once(func(p *process) { p.input(core.Input{Kind: core.Tick}, view{}) })},
	{name: "cancel", count: if1(func(p *process) bool { return p.call != nil && p.due(p.until) }), do: once(func(p *process) { p.cancel(p.call) })},
	{name: "run functions return", count: if1(func(p *process) bool { return p.alive && !p.work && p.n.inner == nil }), do: once((*process).returned), waits: func(n *node) bool {
		return n.p.slow && n.w.now.add(tick) <= n.p.returnAt
	}},
	{name: "peer", effect: changes, count: func(n *node) int { return may(n.turn() != nil) }, do: func(n *node, _ int) { n.q.play() }},
	{name: "peer returns", count: func(n *node) int { return may(n.q != nil && !n.paused && n.q.cancelled() != nil) }, do: func(n *node, _ int) {
		n.q.returned(n.q.cancelled())
	}},
	{name: "default of peer", count: func(n *node) int { return may(n.q != nil && n.q.defaultRevision != n.w.defaultRevision) }, do: func(n *node, _ int) {
		n.q.defaultRevision = n.w.defaultRevision
	}},
	{name: "start", machine: true, when: atRest, count: func(n *node) int { return may(n.idle() && !n.retired) }, do: func(n *node, _ int) { n.start() }},
	{name: "resume", machine: true, when: atRest, count: func(n *node) int { return may(n.paused) }, do: func(n *node, _ int) { n.resume() }},
	{name: "witness", when: atRest, count: func(n *node) int { return may(n.testament() != nil) }, do: func(n *node, _ int) {
		n.w.releaseOver(n.testament(), n.w.store.now)
	}},
	{name: "drop", when: atRest, count: func(n *node) int { return may(len(n.flying) > 0 && n.flying[0].p.ended) }, do: func(n *node, _ int) { n.takeOff(0) }},

	{name: "lose request", when: fault, count: func(n *node) int { return len(n.flying) + may(n.turn() != nil) }, do: func(n *node, i int) {
		if i == len(n.flying) {
			n.playHindered(loseRequest)
			return
		}
		n.hinder(n.takeOff(i))
	}},
	{name: "lose answer", when: fault, count: func(n *node) int { return may(n.p != nil && n.p.hasReply() || n.turn() != nil) }, do: func(n *node, _ int) {
		if n.p == nil {
			n.playHindered(loseAnswer)
			return
		}
		n.p.call.served = false
		n.hinder(n.p.call)
	}},
	{name: "unknown answer", when: fault, count: if1((*process).hasReply), do: once(func(p *process) {
		p.call.result = core.Unknown
		p.n.hinder(p.call)
		p.reply(p.call)
	})},
	{name: "refuse request", when: fault, count: func(n *node) int { return may(len(n.flying) > 0 && n.flying[0] == n.callOf()) }, do: func(n *node, _ int) {
		c := n.takeOff(0)
		n.hinder(c)
		c.served, c.result = true, core.Refused
	}},
	{name: "late request", when: fault, count: func(n *node) int { return may(len(n.flying) > 0 && !n.flying[0].late) }, do: func(n *node, _ int) {
		n.flying[0].late = true
		n.hinder(n.flying[0])
	}},
	{name: "late answer", when: fault, count: func(n *node) int { return may(n.p != nil && n.p.hasReply() && !n.p.call.late) }, do: once(func(p *process) {
		p.call.late = true
		p.n.hinder(p.call)
	})},
	{name: "late watch event", when: fault, count: func(n *node) int { return may(n.p != nil && n.p.behind() && !n.p.late) }, do: once(func(p *process) { p.late = true })},
	{name: "late return", when: fault, count: func(n *node) int { return may(n.p != nil && n.p.alive && !n.p.work && !n.p.slow && n.inner == nil) }, do: once(func(p *process) { p.slow = true })},
	{name: "cut watch", when: fault, count: if1(func(p *process) bool { return p.watching }), do: once(func(p *process) {
		p.closeWatch(0)
		p.late = true
	})},
	{name: "kill", machine: true, when: fault, count: func(n *node) int { return may(n.p != nil || n.q != nil) }, do: func(n *node, _ int) { n.kill("killed") }},
	{name: "stop", machine: true, when: fault, count: func(n *node) int {
		return may(!n.paused && (n.p != nil && !n.p.s.Stopping || n.q != nil && !n.q.stops))
	}, do: func(n *node, _ int) { n.stop() }},
	{name: "fail", when: fault, count: if1(func(p *process) bool { return p.work && p.n.inner == nil }), do: once((*process).fail)},
	{name: "unfit", when: fault, count: if1(func(p *process) bool { return p.n.outer == nil }), do: once(func(p *process) { p.w.fitness(p, !p.unfit) })},
	{name: "pause", machine: true, when: fault, count: func(n *node) int { return may(!n.paused && (n.p != nil || n.q != nil)) }, do: func(n *node, _ int) { n.pause(0, false) }},
	{name: "flip", machine: true, when: fault, count: func(n *node) int { return may(n.first() && n.w.mode.Ranked) }, do: func(n *node, _ int) { n.w.flip() }},
	{name: "delete", when: fault, count: ofLock, do: func(n *node, _ int) { n.w.deleteLock() }},
	{name: "edit", when: fault, count: func(n *node) int { return 3 * ofLock(n) * may(!n.w.mode.peers()) }, do: func(n *node, kind int) {
		[]func(){n.w.emptyRecord, n.w.corruptRecord, n.w.steal}[kind]()
	}},
	{name: "forge", when: fault, count: func(n *node) int { return forgeries * ofLock(n) * may(!n.w.mode.peers()) }, do: func(n *node, seed int) { n.w.forgeWith(seed) }},
	{name: "operator", when: fault, count: func(n *node) int { return 4 * ofLock(n) }, do: func(n *node, kind int) { n.w.operateWith(kind) }},
}

func ofLock(n *node) int {
	now := n.w.store.now
	return may(n.first() && now.snap.Exists && now.snap.Content == record.Readable && now.snap.Record.Holder != "")
}

func (n *node) callOf() *call {
	if n.p == nil {
		return nil
	}
	return n.p.call
}

// hinder records a fault that delays a call of the process.
func (n *node) hinder(c *call) { c.p.troubledAt = n.w.now }

// forgeries is the number of annotations that an exploration writes: each kind in two forms.
const forgeries = 16

func (w *world) forgeWith(seed int) {
	w.rng, w.choosing.random = rand.New(rand.NewPCG(uint64(seed), 0)), true
	w.forgery = seed % (forgeries / 2)
	w.forge()
	w.rng, w.choosing.random = noRandom, false
}

// operateWith executes one of the commands of an operator.
func (w *world) operateWith(kind int) {
	v := w.store.now
	switch to := w.nodes[kind%len(w.nodes)].name; {
	case kind < len(w.nodes):
		w.order(v, to)
	case kind == 2 || kind == len(w.nodes):
		w.order(v, "")
	default:
		w.hold(v, v.snap.Record.Holder, v.snap.Record.Transitions)
	}
}

// zeros is a source of the smallest random numbers. With 0, package rand would draw again without end.
type zeros struct{}

func (zeros) Uint64() uint64 { return 1 << 40 }

var noRandom = rand.New(zeros{})

// movesOf appends the possible moves of a node.
func (w *world) movesOf(node int, when moment, list []choice) []choice {
	n := w.nodes[node]
	list = w.movesAt(n, choice{node: int8(node)}, when, list)
	if n.inner != nil {
		list = w.movesAt(n.inner, choice{node: int8(node), inner: true}, when, list)
	}
	return list
}

func (w *world) movesAt(n *node, c choice, when moment, list []choice) []choice {
	for m := range moves {
		move := &moves[m]
		if move.when != when || when == fault && w.choosing.fault(move.name) < 0 {
			continue
		}
		if move.machine && n.outer != nil {
			continue
		}
		for k := range move.count(n) {
			c.move, c.variant = int8(m), int8(k)
			list = append(list, c)
		}
	}
	return list
}

// waits reports whether time may pass before a move.
func (w *world) waits(c choice) bool {
	waits := moves[c.move].waits
	return waits != nil && waits(w.place(c))
}

// choices returns the possible choices.
func (w *world) choices() []choice {
	var list []choice
	for _, when := range []moment{soon, fault, atRest} {
		if when == fault && w.choosing.left == 0 || when == atRest && slices.ContainsFunc(list, func(c choice) bool {
			return moves[c.move].when == soon && !w.waits(c)
		}) {
			continue
		}
		for i := range w.nodes {
			list = w.movesOf(i, when, list)
		}
		if when == atRest {
			list = append(list, choice{move: -1})
		}
	}
	return list
}

// choose makes a choice. The world must not be used by others.
func (w *world) choose(c choice) {
	w.choosing.path = &path{c, w.choosing.path}
	if w.Trace != nil {
		w.tracef("%v", w.named(c))
	}
	before := w.changes()
	if c.move < 0 {
		w.now = w.now.add(tick)
		if w.inner != nil {
			w.inner.now = w.now
		}
		w.forgetEffects()
		w.checkGates()
		return
	}
	m := &moves[c.move]
	if m.when == fault {
		w.choosing.left &^= 1 << w.choosing.fault(m.name)
	}
	m.do(w.place(c), int(c.variant))
	if w.nodes[c.node].effect = notKnown; m.when != soon || w.changes() != before {
		w.forgetEffects()
	}
	for _, n := range w.allNodes() {
		n.flying = slices.DeleteFunc(n.flying, n.w.over)
		if p := n.awake(); p != nil && p.behind() && p.call == nil && p.s.Known == core.Current && p.newest.snap.Version == n.w.store.now.snap.Version {
			p.see() // it knows this version, and learns nothing
			if n.effect = notKnown; w.inner != nil {
				w.forgetEffects()
			}
		}
	}
}

// over reports whether a call has no effect any more: its process does not wait for it, and the store changes nothing.
func (w *world) over(c *call) bool {
	waits := c.p.call == c && !c.p.ended
	return !waits && (c.op == core.Read || c.base.Exists && !w.store.accepts(c.base))
}

func (w *world) forgetEffects() {
	for _, n := range w.nodes {
		n.effect = notKnown
	}
}

// named describes a choice.
func (w *world) named(c choice) string {
	if c.move < 0 {
		return "time passes"
	}
	name := moves[c.move].name + " of " + w.nodes[c.node].name
	if c.inner {
		name += ", second lock"
	}
	if c.variant > 0 {
		name += " (" + string(rune('0'+c.variant)) + ")"
	}
	return name
}

// checkGates is watchValidity of an exploration.
func (w *world) checkGates() {
	for _, n := range w.allNodes() {
		p := n.awake()
		if p != nil && p.work && p.gate.Mono < p.now().Mono && p.pausedAt < p.ackedAt {
			w.violate(HardStop, "the run functions of %v were not cancelled at the end of validity", p)
		}
	}
}

// beginCalm lets time pass without further faults or choices, from the state of an exploration.
func (w *world) continueCalmly() {
	w.choosing.on = false
	w.rng = rand.New(rand.NewPCG(uint64(w.now), 1))
	w.calm = w.now
	w.rest = w.now.add(w.timing.bound())
	if w.mode.peers() {
		w.rest = w.rest.add(w.timing.peerBound())
	}
	w.end = w.rest.add(w.timing.quiet)
	if w.inner != nil {
		w.continueInner()
	}
	for _, n := range w.allNodes() {
		w := n.w
		for _, c := range n.flying {
			w.after(time.Millisecond, func() {
				c.p.arrive(c, func(late time.Duration, r core.Result, v *view) { w.after(late, func() { c.p.answer(c, r, v) }) })
			})
		}
		if n.resume(); n.q != nil {
			n.q.plan()
			for work := n.q.cancelled(); work != nil; work = n.q.cancelled() {
				n.q.returned(work)
			}
		}
		if n.p == nil {
			continue
		}
		n.p.continueCalmly()
	}
	w.beginCalm()
	w.at(w.rest, w.checkSettled)
	w.play()
	w.checkEnd()
}

func (p *process) continueCalmly() {
	w := p.w
	p.efforts, p.calls = newEfforts(w.now), nil
	if p.wake != core.Never {
		p.setTimer(p.wake, p.timer)
	}
	if c := p.call; c != nil {
		w.at(p.n.clocks.when(p.until), func() { p.cancel(c) })
		if p.hasReply() {
			w.after(time.Millisecond, func() { p.reply(c) })
		}
	}
	if p.alive && !p.work && p.n.inner == nil {
		p.planReturn(0)
	}
	p.continueComposition()
	if p.behind() {
		v := w.store.now
		p.show(&v, p.watch)
	}
}
