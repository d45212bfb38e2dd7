package coordination

import (
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// simCoordinator is a process with a Controller, one term of which may be under way: it looks at what its caches show, has an Observer plan,
// and sends what was planned one request after another, as work does.
type simCoordinator struct {
	w    *simWorld
	id   int
	rate float64       // of its clock
	base time.Duration // what its clock showed at the beginning
	skew time.Duration // of its wall clock

	active      bool
	paused      time.Duration // it does nothing before
	lagged      time.Duration // its watches are late until
	term        int
	began       time.Duration // of the term
	busy, dirty bool
	wake        time.Duration // when it looks again; 0: not by itself
	failures    int

	seen       map[string]time.Duration // when it sees what it sees next of an object
	heard      *hearing
	lease      *coordinationv1.Lease
	candidates map[string]*coordinationv1beta1.LeaseCandidate
	situation  Situation
	observer   *Observer
	memory     simMemory
	notes      map[string]time.Time // of a planted bug
}

func (w *simWorld) addCoordinator(id int) {
	c := &simCoordinator{w: w, id: id, seen: map[string]time.Duration{}, candidates: map[string]*coordinationv1beta1.LeaseCandidate{}, situation: Situation{DefaultRevision: w.defaultRevision}}
	c.begin()
	w.coordinators = append(w.coordinators, c)
}

// begin is a new process: its clocks are other ones, and it has heard of nothing.
func (c *simCoordinator) begin() {
	c.rate, c.base, c.skew = 0.97+0.06*c.w.rng.Float64(), c.w.between(0, time.Hour), c.w.between(-10*time.Minute, 10*time.Minute)
	c.heard = newHearing()
	c.noteLock()
}

// clock is its own, which does not jump.
func (c *simCoordinator) clock() time.Time {
	return simStart.Add(c.base + time.Duration(c.rate*float64(c.w.now)))
}

func (c *simCoordinator) wall() time.Time { return simStart.Add(c.w.now + c.skew) }

// elect begins or ends a term.
func (c *simCoordinator) elect(active bool) {
	c.w.tracef("coordinator %d coordinates: %v", c.id, active)
	c.active, c.observer, c.wake, c.failures, c.busy = active, nil, 0, 0, false
	c.term++
	c.began = c.w.now
	c.memory, c.notes = simMemory{}, nil
	c.look()
}

// sees is when it sees what is stored now: objects in the order of their versions, each late by itself.
func (c *simCoordinator) sees(name string) time.Duration {
	late := c.w.between(time.Millisecond, 10*time.Millisecond)
	if c.w.now < c.lagged {
		late = c.w.between(0, 8*time.Second)
	}
	c.seen[name] = max(c.seen[name]+1, c.w.now+late)
	return c.seen[name]
}

func (c *simCoordinator) seeLease(l *coordinationv1.Lease) {
	c.lease = l
	c.noteLock()
	c.look()
}

// noteLock is hearing.noteLock by this process's clock.
func (c *simCoordinator) noteLock() {
	if c.lease == nil {
		delete(c.heard.locks, simLease)
		return
	}
	if state := stateOf(c.lease); c.heard.locks[simLease].state != state {
		c.heard.locks[simLease] = seenLock{state: state, since: c.clock()}
	}
}

func (c *simCoordinator) seeCandidate(name string, o *coordinationv1beta1.LeaseCandidate) {
	if o == nil {
		delete(c.candidates, name)
	} else {
		c.candidates[name] = o
	}
	c.look()
}

func (c *simCoordinator) again(d time.Duration) {
	at := c.w.now + time.Duration(float64(d)/c.rate) + time.Microsecond
	if c.wake != 0 && c.wake <= at {
		return
	}
	c.wake = at
	c.w.at(at, func() {
		if c.wake == at {
			c.wake = 0
			c.look()
		}
	})
}

// election is what it sees, in any order.
func (c *simCoordinator) election() Election {
	e := Election{Lease: c.lease, Candidates: simSorted(c.candidates), Situation: c.situation}
	c.w.rng.Shuffle(len(e.Candidates), func(i, j int) { e.Candidates[i], e.Candidates[j] = e.Candidates[j], e.Candidates[i] })
	return e
}

// look is work.reconcile.
func (c *simCoordinator) look() {
	if !c.active {
		return
	}
	if c.busy || c.w.now < c.paused {
		c.dirty = true
		return
	}
	c.dirty = false
	e := c.election()
	if len(e.Candidates) == 0 && (e.Lease == nil || strategyOf(e.Lease) == "") {
		c.observer = nil
		c.memory = simMemory{}
		return
	}
	if c.observer == nil {
		c.observer = c.heard.observer(simLease)
		c.memory = simMemory{lock: c.heard.locks[simLease].state, lockSince: c.heard.locks[simLease].since}
	}
	c.memory.observe(c.clock(), e, c.w.checks.troubles)
	p := c.w.bug.plan(c, e)
	c.w.checks.planned(c, e, p)
	c.perform(e, p)
}

// perform is work.write, and what work.next does about its errors.
func (c *simCoordinator) perform(e Election, p Plan) {
	if len(p.Ping)+len(p.Collect) > 0 || p.Lease != nil {
		c.w.tracef("coordinator %d, at version %s of the lock: %v", c.id, simVersion(e.Lease), p)
	}
	c.busy = true
	var failed error
	next := func(then func()) func(error) {
		term := c.term
		return func(err error) {
			if c.term != term {
				return
			}
			if err != nil && !errors.Is(err, errSimConflict) && !errors.Is(err, errSimGone) {
				failed = err
			}
			then()
		}
	}
	c.ping(p, next(func() {
		c.collect(p, next(func() {
			c.put(e, p, next(func() { c.done(p, failed) }))
		}))
	}))
}

func simVersion(l *coordinationv1.Lease) string {
	if l == nil {
		return "none"
	}
	return l.ResourceVersion
}

func (c *simCoordinator) done(p Plan, err error) {
	c.busy = false
	if err != nil {
		c.again(min(50*time.Millisecond<<min(c.failures, 20), time.Minute))
		c.failures++
	} else {
		c.failures = 0
		if p.Again > 0 {
			c.again(p.Again)
		}
	}
	if c.dirty {
		c.look()
	}
}

// ping asks all at once.
func (c *simCoordinator) ping(p Plan, then func(error)) {
	left := len(p.Ping)
	if left == 0 {
		then(nil)
		return
	}
	var failed error
	term := c.term
	for _, object := range p.Ping {
		asking := Pinged(object, c.wall())
		c.w.call(true, func() error {
			if c.w.sprung(&c.w.deleteAsked) {
				c.w.trouble("the LeaseCandidate %s is deleted before it is asked", object.Name)
				_ = c.w.store.deleteCandidate(object.Name, "")
			}
			err := c.w.store.putCandidate(asking)
			if err == nil {
				c.w.checks.pinged(object.Name)
			}
			return err
		}, func(err error) {
			if err != nil && !errors.Is(err, errSimConflict) && !errors.Is(err, errSimGone) {
				failed = err
			} else if c.term == term && c.observer != nil {
				c.observer.replaced(c.clock(), object)
			}
			if left--; left == 0 {
				then(failed)
			}
		})
	}
}

func (c *simCoordinator) collect(p Plan, then func(error)) {
	if len(p.Collect) == 0 {
		then(nil)
		return
	}
	object := p.Collect[0]
	c.w.call(true, func() error {
		err := c.w.store.deleteCandidate(object.Name, object.ResourceVersion)
		if err == nil {
			c.w.checks.collected(c, object)
		}
		return err
	}, func(err error) {
		p.Collect = p.Collect[1:]
		c.collect(p, func(later error) { then(errors.Join(err, later)) })
	})
}

// put writes the lock.
func (c *simCoordinator) put(e Election, p Plan, then func(error)) {
	if p.Lease == nil {
		then(nil)
		return
	}
	var stored *coordinationv1.Lease
	term := c.term
	c.w.call(true, func() (err error) {
		if who := value(p.Lease.Spec.HolderIdentity); who != value(e.Lease.Spec.HolderIdentity) {
			c.w.ambushed(&c.w.killNamed, who)
		}
		c.w.checks.writing(c, e.Lease, p.Lease)
		if stored, err = c.w.store.putLease(p.Lease); err == nil {
			c.w.tracef("coordinator %d writes: %s", c.id, simShown(stored))
		}
		return err
	}, func(err error) {
		if err == nil && c.term == term {
			c.observer.wrote(c.clock(), e.Lease.ResourceVersion, stored)
			c.memory.wrote(c.clock(), e.Lease.ResourceVersion, stored)
		}
		then(err)
	})
}
