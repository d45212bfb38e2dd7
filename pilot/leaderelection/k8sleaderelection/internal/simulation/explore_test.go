package simulation

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Here nothing is left to chance: every order in which messages can arrive is tried, up to a
// depth. The model is smaller than the simulation's. Clocks agree, an event of a watch may be
// late but comes in order, a few messages are lost, and a candidate may crash, be stopped or
// have its functions return at any time. States that differ in nothing but versions, stamps,
// UIDs, the time of day and who of two equal candidates is which are one.

// exploration says what is tried.
type exploration struct {
	candidates int
	depth      int
	delays     int // answers that come later than at once, with anything in between
	losses     int // requests or answers of which nothing is heard; the request may yet arrive
	mishaps    int // crashes, stops and failures of functions; each also begins anew
	deletions  int
	ranked     bool
	flips      int
	step       func() stepper
}

// modelTiming is coarse, so that few instants differ: lease 6, cover 3, retry 2 seconds.
func (e exploration) config(i int) core.Config {
	c := core.Config{
		Self: string(rune('a' + i)), Key: "stable", Ranked: e.ranked, Release: true,
		Timing: core.Timing{
			Lease: 6 * time.Second, Cover: 3 * time.Second, Retry: 2 * time.Second, CallTimeout: time.Second,
			DrainLimit: 2 * time.Second, StopLimit: 4 * time.Second, Patience: time.Second, RankDelay: 500 * time.Millisecond,
		},
	}
	if e.ranked && i == 1 {
		c.Key = "canary"
	}
	return c
}

// wire is a call on its way.
type wire struct {
	op      core.Op
	base    core.Snapshot
	record  core.Record
	notes   core.Notes
	applied bool // it has reached the store, and this is the answer
	result  core.Result
	snap    core.Snapshot
	orphan  bool // nobody waits for its answer any more
}

// side is one candidate and all that is on its way to it.
type side struct {
	s       core.State
	wake    core.Instant
	gate    core.Cover
	work    bool
	alive   bool
	down    bool // its process has ended
	wires   []wire
	events  []core.Snapshot
	lastDef core.DefaultRevision
	saw     bool // it has seen the record of the present term
}

// model is one state of everything.
type model struct {
	now   core.Instant
	lock  core.Snapshot
	next  uint64
	uids  int
	sides []side
	token uint64 // the largest that anybody has acted with
	def   core.DefaultRevision

	delays, losses, mishaps, deletions, flips int
}

type explorer struct {
	exploration
	t      *testing.T
	step   []stepper
	seed   maphash.Seed
	seen   map[uint64]struct{}
	orders [][]int // in which candidates that are equal may stand
	canon  canon
	next   model // what is tried, until it turns out to be new
	states int
	levels []int // new states by depth
	acting int   // states in which somebody acts
	wrong  string
	trace  []string
}

// copyOf makes m a copy of n, in the room that m has.
func (m *model) copyOf(n *model) {
	sides := m.sides
	if sides == nil {
		sides = make([]side, len(n.sides))
	}
	*m = *n
	m.sides = sides
	for i := range sides {
		wires, events := sides[i].wires[:0], sides[i].events[:0]
		sides[i] = n.sides[i]
		sides[i].wires, sides[i].events = append(wires, n.sides[i].wires...), append(events, n.sides[i].events...)
	}
}

func (m *model) moment() core.Moment {
	return core.Moment{Mono: m.now, Boot: int64(m.now), Wall: 1_780_000_000e9 + int64(m.now)}
}

// node is a state and how it was reached. The model goes when all that follows is known.
type exploredNode struct {
	m    model
	now  core.Instant
	from *exploredNode
	how  string
}

// explore visits every state up to the depth, those that are near first.
func (x *explorer) explore() {
	x.seed, x.seen = maphash.MakeSeed(), map[uint64]struct{}{}
	first := model{
		now: core.Instant(time.Hour), next: 10, sides: make([]side, x.candidates),
		delays: x.delays, losses: x.losses, mishaps: x.mishaps, deletions: x.deletions, flips: x.flips,
		def: core.DefaultRevision{Synced: true, Revision: "stable"},
	}
	x.step = make([]stepper, x.candidates)
	for i := range x.step {
		x.step[i] = x.exploration.step()
	}
	for i := range first.sides {
		x.input(&first, i, core.Input{Kind: core.DefaultChanged, Default: first.def})
		x.input(&first, i, core.Input{Kind: core.Watching, Gap: true})
	}
	level := []*exploredNode{{m: first, now: first.now}}
	for depth := 0; depth < x.depth && len(level) > 0 && x.wrong == ""; depth++ {
		var next []*exploredNode
		for _, n := range level {
			x.successors(n, func(how string, m *model) {
				if x.wrong != "" {
					x.blame(n, how)
					return
				}
				key := x.key(m)
				if _, known := x.seen[key]; !known {
					x.seen[key] = struct{}{}
					found := &exploredNode{from: n, how: how, now: m.now}
					found.m.copyOf(m)
					next = append(next, found)
				}
			})
			if x.wrong != "" {
				break
			}
			n.m = model{}
		}
		level = next
		x.levels = append(x.levels, len(level))
	}
	x.states = len(x.seen)
}

func (x *explorer) blame(n *exploredNode, last string) {
	if len(x.trace) > 0 {
		return
	}
	for ; n != nil; n = n.from {
		x.trace = append(x.trace, fmt.Sprintf("%v %s", time.Duration(n.now), n.how))
	}
	slices.Reverse(x.trace)
	x.trace = append(x.trace, last)
}

// successors calls each with everything that can happen next.
func (x *explorer) successors(n *exploredNode, each func(string, *model)) {
	try := func(how string, do func(m *model)) {
		if x.wrong != "" {
			return
		}
		m := &x.next
		m.copyOf(&n.m)
		do(m)
		x.check(m)
		each(how, m)
	}
	for i := range n.m.sides {
		x.ofSide(n, i, try)
	}
	if at, ok := n.m.nextInstant(); ok {
		try("time passes", func(m *model) { x.pass(m, at) })
	}
	if n.m.deletions > 0 && n.m.lock.Exists && n.m.allSaw() {
		try("the lock is deleted", func(m *model) {
			m.deletions--
			m.next++
			x.store(m, core.Snapshot{Version: m.next})
		})
	}
	if n.m.flips > 0 && x.ranked {
		try("the default moves", func(m *model) {
			m.flips--
			m.def.Revision = map[string]string{"stable": "canary", "canary": "stable"}[m.def.Revision]
		})
	}
}

func (x *explorer) ofSide(n *exploredNode, i int, try func(string, func(m *model))) {
	side := &n.m.sides[i]
	name := string(rune('a' + i))
	for j := range side.wires {
		w := &side.wires[j]
		switch {
		case !w.applied && !w.orphan:
			try(fmt.Sprintf("%s's %s is answered", name, w.op), func(m *model) {
				x.arrive(m, i, j)
				x.answer(m, i, j, false)
			})
			if n.m.delays > 0 {
				try(fmt.Sprintf("%s's %s arrives, its answer is late", name, w.op), func(m *model) {
					m.delays--
					x.arrive(m, i, j)
				})
			}
		case !w.applied:
			try(fmt.Sprintf("%s's %s arrives, for nobody", name, w.op), func(m *model) { x.arrive(m, i, j) })
		case !w.orphan:
			try(fmt.Sprintf("%s hears of its %s: %s", name, w.op, w.result), func(m *model) { x.answer(m, i, j, false) })
		}
		if n.m.losses > 0 && !w.orphan {
			try(fmt.Sprintf("%s hears nothing of its %s", name, w.op), func(m *model) {
				m.losses--
				x.answer(m, i, j, true)
			})
		}
	}
	if side.down {
		try(name+" starts anew", func(m *model) { x.restart(m, i) })
		return
	}
	if len(side.events) > 0 {
		try(name+" is shown "+shown(side.events[0]), func(m *model) {
			s := &m.sides[i]
			snap := s.events[0]
			s.events = s.events[1:]
			x.input(m, i, core.Input{Kind: core.Seen, Snap: snap})
		})
	}
	if side.alive && !side.work {
		try(name+"'s functions return", func(m *model) {
			m.sides[i].alive = false
			x.input(m, i, core.Input{Kind: core.Drained})
		})
	}
	if side.lastDef != n.m.def {
		try(name+" hears of the default", func(m *model) { x.input(m, i, core.Input{Kind: core.DefaultChanged, Default: m.def}) })
	}
	if n.m.mishaps > 0 {
		try(name+" crashes", func(m *model) {
			m.mishaps--
			x.end(m, i)
		})
		if !side.s.Stopping {
			try(name+" is told to stop", func(m *model) {
				m.mishaps--
				x.input(m, i, core.Input{Kind: core.Stop})
			})
		}
		if side.work {
			try(name+"'s function fails", func(m *model) {
				m.mishaps--
				x.input(m, i, core.Input{Kind: core.StepDown})
			})
		}
	}
}
