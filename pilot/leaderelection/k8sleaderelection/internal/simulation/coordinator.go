package simulation

import (
	"math"
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// electionDuration is the wait of a coordinator for a preferred candidate, and its pause for a candidate that
// released the lock.
const electionDuration = 5 * time.Second

// coordinator names the leader, as the controller of Kubernetes does. There may be two. A coordinator has its
// own watch and a clock that may be wrong, so that a live holder appears expired.
type coordinator struct {
	w       *world
	id      int
	clock   float64 // factor for the lease; 1: correct
	seen    view
	seenAt  Time // last change of the record
	busy    bool
	turn    int  // number of the current timer
	due     Time // of the current timer
	paused  Time // it does nothing before
	wish    string
	named   string // candidate that it named last
	memory  []candidacy
	ignored int  // number of nominations that expired
	since   Time // since when another candidate is preferred
	calm    Time // no other preference before
}

// candidacy is what a coordinator remembers of a candidate.
type candidacy struct {
	name    string
	spared  Time // it is not named before
	skipped Time // it is not preferred before
	failed  int  // number of times that it did not acquire the lock
}

// of returns what the coordinator remembers of a candidate.
func (c *coordinator) of(name string) *candidacy {
	i := slices.IndexFunc(c.memory, func(m candidacy) bool { return m.name == name })
	if i < 0 {
		i = len(c.memory)
		c.memory = append(c.memory, candidacy{name: name})
	}
	return &c.memory[i]
}

func (w *world) addCoordinators() {
	if !w.mode.Coordinated || w.mode.Removed {
		return
	}
	for i := range 1 + w.rng.IntN(2) {
		c := &coordinator{w: w, id: i, clock: 1.05}
		if w.chance(w.mode.WrongClock) {
			c.clock = 0.1 + 0.9*w.rng.Float64()
		}
		w.coordinators = append(w.coordinators, c)
		w.after(w.within(time.Second), c.look)
	}
}

// silence stops the coordinators for a while and informs some of the candidates.
func (w *world) silence() {
	d := 4*w.timing.lease + w.within(8*w.timing.lease)
	w.tracef("no coordinator for %v", d)
	for _, c := range w.coordinators {
		c.paused = w.now.add(d)
		w.at(c.paused, c.look)
	}
	if w.rng.IntN(2) == 0 {
		w.absent(true)
		w.after(d, func() {
			if w.faulty() { // see beginCalm
				w.absent(false)
			}
		})
	}
}

func (w *world) absent(so bool) {
	for _, n := range w.nodes {
		w.after(w.within(3*time.Second), func() {
			if p := n.p; p != nil && (!so || w.faulty()) {
				n.run(func() { p.input(core.Input{Kind: core.Coordinator, Absent: so}, view{}) })
			}
		})
	}
}

// changeWish makes the coordinators prefer another candidate.
func (w *world) changeWish() {
	who := w.nodes[w.rng.IntN(len(w.nodes))].name
	w.tracef("the coordinators prefer %s", who)
	w.happened(2)
	w.checks.busyAt = w.now
	for _, c := range w.coordinators {
		c.wish = who
		w.after(w.within(100*time.Millisecond), c.look)
	}
}

// best returns the candidate to lead: the wish, then by rank, then by name.
func (c *coordinator) best() string {
	w := c.w
	all := slices.Clone(w.nodes)
	slices.SortStableFunc(all, func(a, b *node) int {
		switch {
		case a.name == c.wish || w.mode.Ranked && core.Outranks(a.key, b.key, w.defaultRevision) && b.name != c.wish:
			return -1
		case b.name == c.wish || w.mode.Ranked && core.Outranks(b.key, a.key, w.defaultRevision):
			return 1
		}
		return 0
	})
	for _, n := range all {
		there := n.p != nil && !n.p.unfit && !n.p.cfg.BackingOff(&n.p.s, n.p.now().Mono) && !n.p.s.Stopping && n.coordinated()
		if w.now < c.of(n.name).spared || n.retired {
			continue
		}
		if there || w.faulty() && w.chance(w.mode.Net/4) { // it was available a moment ago
			return n.name
		}
	}
	return ""
}

// sees processes a watch event.
func (c *coordinator) sees(v view) {
	if !v.newer(c.seen) && c.seen != (view{}) {
		return
	}
	old := c.seen.snap
	if old.Sum != v.snap.Sum || old.Exists != v.snap.Exists {
		c.seenAt = c.w.now
	}
	if c.named != "" && old.Record.Holder == c.named && v.snap.Exists && v.snap.Record.Holder == "" && isNominated(old) {
		c.spare(c.named) // it released the lock
	}
	if v.snap.Preferred != old.Preferred {
		c.since = c.w.now
	}
	c.seen = v
	c.look()
}

func (c *coordinator) spare(who string) { c.of(who).spared = c.pauseFor(who) }

// pauseFor returns the end of the pause for a candidate that did not acquire the lock. Each pause is twice as long.
func (c *coordinator) pauseFor(who string) Time {
	m := c.of(who)
	m.failed = min(m.failed+1, 6)
	return c.w.now.add(electionDuration << m.failed)
}

// look decides on a write and plans the next look.
func (c *coordinator) look() {
	w := c.w
	c.turn++
	turn := c.turn
	c.due = w.now.add(electionDuration)
	again := func(d time.Duration) {
		c.due = min(c.due, w.now.add(d))
		w.after(d, func() {
			if c.turn == turn {
				c.look()
			}
		})
	}
	again(electionDuration)
	if c.busy || w.now < c.paused || c.seen == (view{}) && w.store.now.snap.Exists {
		return
	}
	next := c.seen
	s := &next.snap
	ends := c.seenAt.add(time.Duration(float64(s.Record.Lease) * c.clock))
	live := s.Record.Holder != "" && w.now < ends
	switch {
	case live:
		again(ends.since(w.now))
	case isNominated(*s):
		if c.ignored++; c.ignored%4 == 0 {
			c.spare(s.Record.Holder) // it does not acquire the lock
		}
	}
	best := c.best()
	switch {
	case best == "" || s.Exists && s.Content == record.Unreadable:
		return
	case !s.Exists:
		*s = core.Snapshot{Exists: true, Content: record.Readable, Strategy: true, Record: core.Record{Lease: electionDuration, Renewed: w.stampOf(c)}}
	case !s.Strategy:
		s.Strategy = true
	case !live:
		s.Content, s.Preferred = record.Readable, ""
		s.Record.Holder, s.Record.Lease, s.Record.Renewed = best, electionDuration, w.stampOf(c)
		s.Record.Acquired = s.Record.Renewed
		s.Annotations.Nominated = core.Nomination{Identity: best, Transitions: s.Record.Transitions, Uncounted: true}
		c.named = best
	case s.Preferred != "" && (s.Record.Holder == best || w.now > c.since.add(electionDuration)):
		if s.Record.Holder != best {
			c.of(best).skipped = c.pauseFor(best) // it did not acquire the lock
		}
		s.Preferred = ""
		c.calm = w.now.add(electionDuration)
	case s.Record.Holder != best && s.Preferred != best && w.now >= max(c.calm, c.of(best).skipped):
		s.Preferred = best
		c.calm = w.now.add(electionDuration)
	default:
		return
	}
	c.put(next)
}

// stampOf returns the time of the API server in microseconds.
func (w *world) stampOf(c *coordinator) core.Stamp {
	return core.Stamp(1_780_000_000e6) + core.Stamp(time.Duration(w.now)/time.Microsecond) + core.Stamp(1+c.id)
}

// put sends a guarded write. The reply may be lost and the write may arrive late.
func (c *coordinator) put(next view) {
	w, base := c.w, c.seen.snap
	c.busy = true
	free := func(d time.Duration) {
		w.after(d, func() {
			if c.busy {
				c.busy = false
				c.look()
			}
		})
	}
	if w.choosing.on {
		if c.busy = false; !w.store.accepts(base) {
			c.sees(w.store.now)
			return
		}
		w.store.coordinate(next)
		return
	}
	free(w.timing.retry)
	there := w.latency(w.timing.retry)
	if w.lost() {
		return
	}
	w.after(there, func() {
		if w.now < w.apiDown {
			return
		}
		if !w.store.accepts(base) {
			w.after(w.within(5*time.Millisecond), func() { c.sees(w.store.now) })
			free(20 * time.Millisecond)
			return
		}
		w.store.coordinate(next)
		w.tracef("  the store: a coordinator writes %s, prefers %q", shown(w.store.now.snap), w.store.now.snap.Preferred)
		free(w.within(20 * time.Millisecond))
	})
}

// coordinate applies a write of a coordinator.
func (s *store) coordinate(next view) {
	now := s.now
	next.foreign, next.term, next.released = now.foreign, now.term, now.released
	switch {
	case !now.snap.Exists:
		s.uids++
		next.snap.UID, next.foreign, next.term, next.released = uid(s.uids), 0, nil, now.term == nil
		if now.term != nil {
			next.term = &term{named: true}
		}
	case next.snap.Record == now.snap.Record:
	case now.term != nil && !now.term.named:
		next.term, next.released = &term{named: true}, false
	}
	s.foreignEdit(next, false)
	s.w.happened(1)
}

func (w *world) notifyCoordinators(v *view) {
	for _, c := range w.coordinators {
		late := time.Millisecond + w.within(10*time.Millisecond)
		if w.faulty() && w.chance(w.mode.Lag) {
			late += w.within(w.timing.lease)
		}
		w.after(late, func() { c.sees(*v) })
	}
}

// coordinated reports whether the processes of the node wait to be named.
func (n *node) coordinated() bool { return n.w.mode.Coordinated && !n.uncoordinated }

// isNominated reports whether another process wrote the holder, which has not written itself.
func isNominated(s core.Snapshot) bool {
	n := s.Annotations.Nominated
	return s.Exists && s.Content == record.Readable && s.Record.Holder != "" && n.Identity == s.Record.Holder &&
		n.Transitions == s.Record.Transitions && s.Record.Renewed == s.Record.Acquired &&
		(n.Uncounted || !names(s.Annotations.Marker, s.Record))
}

// coordinatorMoves are the choices of an exploration with a coordinator. They are moves of the first node.
var coordinatorMoves = []move{
	{name: "coordinator looks", effect: changes, count: func(n *node) int { return may(n.first() && n.w.coordinatorDue()) }, do: func(n *node, _ int) {
		n.w.coordinators[0].takeTurn()
	}},
	{name: "coordinator is there", count: if1(func(p *process) bool { return p.seen.absent && !p.w.uncoordinated() }), do: once(func(p *process) {
		p.input(core.Input{Kind: core.Coordinator}, view{})
	})},
	{name: "coordinator is absent", when: atRest, count: if1(func(p *process) bool { return !p.seen.absent && p.w.uncoordinated() }), do: once(func(p *process) {
		p.input(core.Input{Kind: core.Coordinator, Absent: true}, view{})
	})},
	{name: "coordinator returns", when: atRest, count: func(n *node) int {
		return may(n.first() && len(n.w.coordinators) > 0 && n.w.uncoordinated())
	}, do: func(n *node, _ int) {
		c := n.w.coordinators[0]
		c.paused, c.due = 0, n.w.now
	}},
	{name: "coordinator", when: fault, count: func(n *node) int {
		return (2*len(n.w.nodes) + 2) * may(n.first() && len(n.w.coordinators) > 0)
	}, do: func(n *node, kind int) { n.w.coordinators[0].fail(kind) }},
}

// fail causes a fault: a restart, a pause, or another wish, also with a clock by which the holder has expired.
func (c *coordinator) fail(kind int) {
	w := c.w
	switch n := len(w.nodes); {
	case kind < 2*n:
		c.wish, c.clock = w.nodes[kind/2].name, float64(kind%2)
		c.takeTurn()
		c.clock = 1
	case kind == 2*n:
		*c = coordinator{w: w, clock: 1, due: w.now, wish: c.wish}
	default:
		c.paused = math.MaxInt64
	}
}

func (c *coordinator) behind() bool { return c.seen.snap.Version < c.w.store.now.snap.Version }

// coordinatorDue reports whether the coordinator of an exploration has a turn before time passes.
func (w *world) coordinatorDue() bool {
	return len(w.coordinators) > 0 && !w.uncoordinated() && (w.coordinators[0].behind() || w.coordinators[0].due <= w.now)
}

func (c *coordinator) takeTurn() {
	if c.behind() {
		c.sees(c.w.store.now)
	} else {
		c.look()
	}
}

// uncoordinated reports whether no coordinator acts in a coordinated election.
func (w *world) uncoordinated() bool {
	return w.mode.Coordinated && (len(w.coordinators) == 0 || w.now < w.coordinators[0].paused)
}

// canonical removes what is not read in this state.
func (c *coordinator) canonical() {
	if s := &c.seen.snap; c.w.now >= c.seenAt.add(s.Record.Lease) || s.Record.Holder == "" {
		c.seenAt = 0
	}
	if c.seen.snap.Preferred == "" {
		c.since = 0
	}
	if !c.behind() {
		c.seen = view{}
	}
	c.ignored %= 4
}
