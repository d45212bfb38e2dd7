package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// pairCall is one call of a process, of one request to the store or of several.
type pairCall struct {
	p      *pairProcess
	op     core.Op
	base   core.Snapshot
	record core.Record
	notes  core.Notes
	write  core.PairWrite
	sentAt Time
	tries  int    // of the second write
	again  func() // looks at the secondary, and tries anew
}

// maxAmends is how often a MultiLock begins a write to one object anew.
const maxAmends = 4

func (p *pairProcess) send(a core.Action) {
	w := p.w
	c := &pairCall{p: p, op: a.Op, base: a.Base, record: a.Record, notes: a.Notes, sentAt: w.now}
	p.call = c
	w.at(p.clocks.when(p.clocks.mono(w.now).After(p.cfg.CallTimeout)), func() { c.fails(core.Unknown) })
	switch {
	case !p.both && a.Op == core.Read:
		c.request(func() (core.Result, core.Snapshot) { return core.OK, w.get(w.single) }, c.succeeds)
	case !p.both:
		c.request(func() (core.Result, core.Snapshot) { return c.put(w.single, a.Base, a.Record, a.Notes) }, c.succeeds)
	case a.Op == core.Read:
		c.readBoth(core.Primary)
	default:
		if a.Base.Exists {
			c.write.Base = p.base
		}
		c.write.Self, c.write.Record = p.id, a.Record
		c.begin()
	}
}

// request is one request: it may arrive after its call has been given up, or never.
func (c *pairCall) request(do func() (core.Result, core.Snapshot), then func(core.Snapshot)) {
	p, w := c.p, c.p.w
	if w.lost() {
		return
	}
	w.after(w.latency(p.cfg.CallTimeout), func() {
		if w.now < p.away || p.ended && w.rng.IntN(2) == 0 {
			return
		}
		result, s := do()
		if w.lost() {
			return
		}
		w.after(w.latency(p.cfg.CallTimeout), func() {
			switch {
			case p.call != c || p.ended:
			case result == core.OK:
				then(s)
			default:
				c.refused(result)
			}
		})
	})
}

// refused is the answer to a request that did nothing. Once one object was written, what stands
// is open.
func (c *pairCall) refused(result core.Result) {
	if c.p.both && c.tries > 0 {
		if result == core.Conflict && c.tries < maxAmends {
			c.again()
			return
		}
		result = core.Unknown
	}
	c.fails(result)
}

func (c *pairCall) put(h core.Half, base core.Snapshot, r core.Record, n core.Notes) (core.Result, core.Snapshot) {
	if h == core.Secondary && c.p.poor {
		return core.Refused, core.Snapshot{}
	}
	return c.p.w.put(h, base, r, n)
}

// fails ends the call without an answer that shows the lock.
func (c *pairCall) fails(result core.Result) {
	if c.p.call != c || c.p.ended {
		return
	}
	c.p.call = nil
	c.p.input(core.Input{Kind: core.Replied, Result: result}, core.Pair{})
}

// succeeds ends the call of a process that needs one object.
func (c *pairCall) succeeds(s core.Snapshot) {
	c.p.call = nil
	c.p.w.acknowledged(c)
	c.p.input(core.Input{Kind: core.Replied, Snap: s}, core.Pair{})
}

// shows ends the call of a process that needs both.
func (c *pairCall) shows(v core.PairSight) {
	c.p.call = nil
	c.p.w.acknowledged(c)
	c.p.seen(core.Input{Kind: core.Replied}, v)
}

// readBoth asks for one object after the other.
func (c *pairCall) readBoth(h core.Half) {
	p := c.p
	asked := p.sight.Asked(h)
	c.request(func() (core.Result, core.Snapshot) { return core.OK, p.w.get(h) }, func(s core.Snapshot) {
		p.sight, _ = p.sight.Read(h, s, asked)
		if h == core.Primary {
			c.readBoth(core.Secondary)
			return
		}
		c.shows(p.sight)
	})
}

// begin is the first request of a write: to the object whose record is shown if the record
// stays as it is, else to the primary; a claim and a request for the lock ask first whether the
// secondary could be written.
func (c *pairCall) begin() {
	p, w := c.p, c.p.w
	if claims := w.rules.rehearses && c.write.Claims() && c.op != core.Ask; p.poor && (claims || w.rules.modest && c.op == core.Ask) {
		c.request(func() (core.Result, core.Snapshot) { return core.Refused, core.Snapshot{} }, nil)
		return
	}
	if c.op == core.Ask {
		h, _ := w.rules.shown(c.write.Base, p.id)
		base := *c.write.Base.Of(h)
		notes := c.notes
		notes.Needs = base.Notes.Needs
		c.request(func() (core.Result, core.Snapshot) { return c.put(h, base, base.Record, notes) }, func(s core.Snapshot) {
			p.sight, _ = w.rules.stored(p.sight, h, s)
			shown := core.PairSight{Pair: c.write.Base}
			*shown.Of(h) = s
			c.shows(shown)
		})
		return
	}
	base := c.write.Base.Primary
	p.sight = w.rules.sends(p.sight, core.Primary, c.record, c.notes)
	c.request(func() (core.Result, core.Snapshot) {
		return c.put(core.Primary, base, c.record, c.notesFor(c.write.Base.Secondary))
	}, func(first core.Snapshot) {
		p.sight, _ = w.rules.stored(p.sight, core.Primary, first)
		c.second(first, c.write.Base.Secondary, c.notesFor(first))
	})
}

// notesFor are the notes beside the record on one object, when the other is that.
func (c *pairCall) notesFor(other core.Snapshot) core.Notes {
	n := c.notes
	n.Needs = c.write.Needs(other)
	return n
}

// second writes the secondary, after the primary holds the record.
func (c *pairCall) second(first, base core.Snapshot, notes core.Notes) {
	p, w := c.p, c.p.w
	c.tries++
	c.again = func() {
		c.request(func() (core.Result, core.Snapshot) { return core.OK, w.get(core.Secondary) }, func(now core.Snapshot) {
			p.sight, _ = w.rules.stored(p.sight, core.Secondary, now)
			if w.rules.yields(c.write, now) {
				c.fails(core.Unknown)
				return
			}
			if w.rules.merges {
				notes = c.write.Carried(p.sight, now, notes)
			}
			c.second(first, now, notes)
		})
	}
	p.sight = w.rules.sends(p.sight, core.Secondary, c.record, notes)
	c.request(func() (core.Result, core.Snapshot) { return c.put(core.Secondary, base, c.record, notes) }, func(second core.Snapshot) {
		p.sight, _ = w.rules.stored(p.sight, core.Secondary, second)
		if p.sight.Overtaken(first.Version, second.Version) {
			c.fails(core.Unknown)
			return
		}
		c.shows(core.PairSight{Pair: core.Pair{Primary: first, Secondary: second}})
	})
	if w.rules.hopeful {
		c.shows(core.PairSight{Pair: core.Pair{Primary: first, Secondary: first}})
	}
}
