package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// simRun plays a seed: storms, in which the network fails and much happens, then times in which one thing happens after another, and a
// calm end.
func simRun(w *simWorld) *simWorld {
	for id := range 2 {
		w.addCoordinator(id)
	}
	for range 2 + w.rng.IntN(3) {
		w.start()
	}
	both := w.chance(0.4)
	w.coordinators[0].elect(true)
	w.coordinators[1].elect(both)
	w.tick()
	w.runFor(w.between(0, 30*time.Second))
	for range 1 + w.rng.IntN(2) {
		w.storm()
		for range 2 + w.rng.IntN(3) {
			w.act()
			w.runFor(w.between(20*time.Second, 90*time.Second))
		}
	}
	end := 2 * time.Minute
	if w.chance(0.05) {
		end = 36 * time.Minute
	}
	w.runFor(end)
	return w
}

// storm has much go wrong at once, and ends it.
func (w *simWorld) storm() {
	w.tracef("== a storm begins")
	w.stormy = true
	for range 2 + w.rng.IntN(6) {
		if w.chance(0.5) {
			w.fault()
		} else {
			w.act()
		}
		w.runFor(w.between(0, 5*time.Second))
	}
	w.stormy = false
	w.tracef("== the storm is over")
	for _, c := range w.coordinators {
		c.paused, c.lagged = w.now, w.now
	}
	w.late = w.now + 2*requestTimeout
	w.trouble("the storm is over")
	w.at(w.late, func() { w.trouble("what was late in the storm has come") })
	w.runFor(w.between(0, time.Minute))
}

// fault has something fail for a while.
func (w *simWorld) fault() {
	c, d := w.coordinators[w.rng.IntN(2)], w.between(0, 20*time.Second)
	switch w.rng.IntN(3) {
	case 0:
		w.trouble("coordinator %d stands still for %v", c.id, d)
		c.paused = w.now + d
		w.after(d, c.look)
	case 1:
		w.trouble("coordinator %d sees everything late for %v", c.id, d)
		c.lagged = w.now + d
	default:
		if p := w.any(); p != nil {
			w.trouble("%s is cut off for %v", p.name, d)
			p.cut = w.now + d
			w.at(p.cut, func() { w.trouble("%s is back", p.name); p.look(); p.answer() })
		}
	}
}

// any is one that lives, the leader more often than others.
func (w *simWorld) any() *simCandidate {
	if p := w.leader(); p != nil && w.chance(0.4) {
		return p
	}
	var all []*simCandidate
	for _, p := range w.candidates {
		if p.alive {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

func (w *simWorld) alive() (n int) {
	for _, p := range w.candidates {
		if p.alive {
			n++
		}
	}
	return n
}

// act has something happen.
func (w *simWorld) act() {
	p := w.any()
	if p == nil || w.alive() < 2 || w.alive() < 5 && w.chance(0.12) {
		w.start()
		return
	}
	acts := []func(*simCandidate){
		(*simCandidate).crash, (*simCandidate).stop, w.silence, w.unwilling, w.unwilling, w.stumble, w.lateness, w.label, w.label, w.flip, w.flip, w.flip,
		w.edit, w.deletion, w.restart, w.restart, w.ambush, w.ambush,
	}
	acts[w.rng.IntN(len(acts))](p)
}

func (w *simWorld) silence(p *simCandidate) {
	p.silent = !p.silent
	w.trouble("%s is silent: %v", p.name, p.silent)
	p.answer()
}

func (w *simWorld) unwilling(p *simCandidate) {
	if p.stuck || w.chance(0.3) {
		p.stuck = !p.stuck
		w.trouble("%s is stuck: %v", p.name, p.stuck)
		p.look()
		return
	}
	p.refuses = !p.refuses
	w.trouble("%s refuses to lead: %v", p.name, p.refuses)
}

// stumble has the leader give the lock up, and stay a candidate: the only one, perhaps, until another comes.
func (w *simWorld) stumble(*simCandidate) {
	p := w.leader()
	if p == nil {
		return
	}
	w.trouble("%s gives up", p.name)
	p.drain()
	if w.chance(0.5) {
		return
	}
	for _, other := range w.candidates {
		if other != p && other.alive {
			other.crash()
			_ = w.store.deleteCandidate(other.name, "")
		}
	}
	w.after(w.between(time.Second, 6*time.Second), w.start)
}

// lateness has a claim come about when its nomination is over, or a drain last longer than it is waited for.
func (w *simWorld) lateness(p *simCandidate) {
	if w.chance(0.3) {
		p.long = w.between(3*time.Second, 9*time.Second)
		w.trouble("%s needs %v longer to drain", p.name, p.long)
		return
	}
	p.late = w.between(4500*time.Millisecond, 8*time.Second)
	w.trouble("%s will be %v late", p.name, p.late)
}

func (w *simWorld) label(p *simCandidate) {
	switch w.rng.IntN(3) {
	case 0:
		p.relabel(RevisionLabel, simRevisions[w.rng.IntN(2)])
	case 1:
		p.relabel(FitLabel, []string{"true", "false"}[w.rng.IntN(2)])
	default:
		p.relabel(PriorityLabel, []string{"0", "1", "2", "none"}[w.rng.IntN(4)])
	}
}

// flip changes the default revision, which coordinators hear of one after the other.
func (w *simWorld) flip(*simCandidate) {
	w.defaultRevision = simRevisions[w.rng.IntN(2)]
	w.trouble("the default revision is %s", w.defaultRevision)
	for _, c := range w.coordinators {
		revision := w.defaultRevision
		w.at(c.sees("default"), func() {
			c.situation.DefaultRevision = revision
			c.look()
		})
	}
}

// edit changes the strategy by hand.
func (w *simWorld) edit(*simCandidate) {
	write := func(strategy string) {
		if w.store.lease == nil {
			return
		}
		l := w.store.lease.DeepCopy()
		l.Spec.Strategy = nil
		if strategy != "" {
			l.Spec.Strategy = (*coordinationv1.CoordinatedLeaseStrategy)(&strategy)
		} else {
			l.Spec.PreferredHolder = nil
		}
		w.trouble("the strategy becomes %q", strategy)
		_, _ = w.store.putLease(l)
	}
	if w.chance(0.4) {
		write("")
		return
	}
	write("example.com/Other")
	w.after(w.between(0, 40*time.Second), func() { write(DefaultRevision) })
}

func (w *simWorld) deletion(p *simCandidate) {
	switch w.rng.IntN(3) {
	case 0:
		if w.store.lease != nil {
			w.trouble("the lock is deleted")
			w.store.deleteLease()
		}
	case 1:
		w.trouble("the LeaseCandidate %s is deleted", p.name)
		_ = w.store.deleteCandidate(p.name, "")
	default:
		w.trouble("the LeaseCandidate that is asked next is deleted")
		w.deleteAsked = true
	}
}

// restart ends a coordinator's term or process, and another one may go on.
func (w *simWorld) restart(*simCandidate) {
	c := w.coordinators[w.rng.IntN(2)]
	other := w.coordinators[1-c.id]
	w.trouble("coordinator %d ends", c.id)
	if w.chance(0.5) {
		c.begin()
	}
	c.elect(false)
	back := func() { w.trouble("coordinator %d begins", c.id); c.elect(true) }
	switch {
	case !other.active && w.chance(0.5):
		w.after(w.between(0, 5*time.Second), func() { w.trouble("coordinator %d begins", other.id); other.elect(true) })
	case !other.active || w.chance(0.5):
		w.after(w.between(0, 10*time.Second), back)
	}
}

func (w *simWorld) ambush(*simCandidate) {
	if w.chance(0.5) {
		w.trouble("who is named next dies")
		w.killNamed = true
		return
	}
	w.trouble("who is preferred next dies before the handover")
	w.killPreferred = true
}

// ambushed has somebody die whose moment has come.
func (w *simWorld) ambushed(ambush *bool, who string) {
	if p := w.candidate(who); p != nil && p.alive && w.sprung(ambush) {
		p.crash()
	}
}

func (w *simWorld) sprung(ambush *bool) bool {
	was := *ambush
	*ambush = false
	return was
}
