package simulation

import (
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
	paused  Time // it does nothing before
	wish    string
	named   string          // candidate that it named last
	spared  map[string]Time // candidates that it does not name before
	skipped map[string]Time // candidates that it does not prefer before
	ignored int             // number of nominations that expired
	failed  map[string]int  // number of times that a candidate did not acquire the lock
	since   Time            // since when another candidate is preferred
	calm    Time            // no other preference before
}

func (w *world) addCoordinators() {
	if !w.mode.Coordinated || w.mode.Removed {
		return
	}
	for i := range 1 + w.rng.IntN(2) {
		c := &coordinator{w: w, id: i, clock: 1.05, spared: map[string]Time{}, skipped: map[string]Time{}, failed: map[string]int{}}
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
		if w.now < c.spared[n.name] || n.retired {
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

func (c *coordinator) spare(who string) { c.spared[who] = c.pauseFor(who) }

// pauseFor returns the end of the pause for a candidate that did not acquire the lock. Each pause is twice as long.
func (c *coordinator) pauseFor(who string) Time {
	c.failed[who]++
	return c.w.now.add(electionDuration << min(c.failed[who], 6))
}

// look decides on a write and plans the next look.
func (c *coordinator) look() {
	w := c.w
	c.turn++
	turn := c.turn
	again := func(d time.Duration) {
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
			c.skipped[best] = c.pauseFor(best) // it did not acquire the lock
		}
		s.Preferred = ""
		c.calm = w.now.add(electionDuration)
	case s.Record.Holder != best && s.Preferred != best && w.now >= max(c.calm, c.skipped[best]):
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
	free(w.timing.retry)
	there := w.latency(w.timing.retry)
	if w.lost() {
		return
	}
	w.after(there, func() {
		if w.now < w.apiDown {
			return
		}
		if now := w.store.now; now.snap.Exists != base.Exists || base.Exists && (now.snap.Version != base.Version || now.snap.UID != base.UID) {
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
