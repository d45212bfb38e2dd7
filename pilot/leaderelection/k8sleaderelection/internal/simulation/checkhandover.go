package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// write checks what p is about to write against the rules of the handover. A planted bug
// may write unguarded; that is checked elsewhere.
func (c *checks) write(p *process, call *call) {
	if call.base.Version == unguardedVersion {
		return
	}
	if h := call.notes.Hold; call.op != core.HandOver && h != (core.Hold{}) && h != p.seen.snap.Annotations.Hold {
		c.w.violate(Orders, "%v writes a hold that no operator gave: %+v", p, h)
	}
	switch call.op {
	case core.SendRequest:
		c.asks(p, call)
	case core.Acquire:
		c.acquires(p, call)
		c.marks(p, call)
	case core.Renew:
		c.accepts(p, call)
		c.marks(p, call)
	case core.HandOver:
		c.handsOver(p, call)
	case core.Release:
		// Once it has let the term lapse, nobody waits for its word any more.
		if r := p.seen.snap.Annotations.Request; addressed(p.seen.snap) && r.Accepted && r.Identity != "" && p.s.Term != (core.Term{}) {
			c.w.violate(Handover, "%v releases the lock that it has promised to %q", p, r.Identity)
		}
		if call.notes != (core.Annotations{}) {
			c.w.violate(Handover, "%v's release leaves %+v behind", p, call.notes)
		}
	case core.NoOp, core.Read:
	}
}

// asks: rule 1.
func (c *checks) asks(p *process, call *call) {
	w, s, now, r := c.w, p.seen.snap, p.now().Mono, call.notes.Request
	m := s.Annotations.Marker
	if p.cfg.Coordinated && !p.seen.alone(p) {
		w.violate(Coordination, "%v asks %s, and is to wait until it is named", p, shown(s))
	}
	if !names(m, s.Record) || !m.Handover || s.Record.Holder == p.id {
		w.violate(Handover, "%v asks %s, who knows no handover", p, shown(s))
	}
	if r.Identity != p.id || r.Holder != s.Record.Holder || r.Transitions != s.Record.Transitions || r.Accepted {
		w.violate(Handover, "%v asks in another name, or another term: %+v of %s", p, r, shown(s))
	}
	byRank := core.Outranks(p.key, s.Record.Key, p.seen.defaultRevision)
	switch {
	case p.seen.unfit:
		w.violate(Fitness, "%v asks for the lock, and is unfit", p)
	case m.Unfit:
	case !byRank:
		w.violate(Handover, "%v asks %s, whom it does not outrank", p, shown(s))
	case p.seen.paused(now):
		w.violate(Orders, "%v asks although an operator holds %s", p, shown(s))
	}
	other := s.Annotations.Request
	if p.seen.stands(now) && (other.Identity == p.id || other.Reason == core.ForOperator || !core.Outranks(p.key, other.Key, p.seen.defaultRevision)) {
		w.violate(Handover, "%v asks although a request of %q stands", p, other.Identity)
	}
	p.seen.asked = true
}

// accepts: rule 2, and the first half of 3. A request that ran out is not accepted, nor
// one of another term.
func (c *checks) accepts(p *process, call *call) {
	r := call.notes.Request
	if !r.Accepted || call.base.Annotations.Request.Accepted {
		return
	}
	w, now := c.w, p.now().Mono
	r = p.seen.snap.Annotations.Request
	switch {
	case !addressed(p.seen.snap) || r.Holder != p.id || r.Transitions != call.record.Transitions:
		w.violate(Handover, "%v accepts a request to %s in term %d", p, r.Holder, r.Transitions)
	case now >= p.seen.runsOut():
		w.violate(Handover, "%v accepts the request of %q, which has run out", p, r.Identity)
	case r.Reason == core.ForOperator, p.seen.unfit:
	case !core.Outranks(r.Key, p.key, p.seen.defaultRevision):
		w.violate(Handover, "%v accepts the request of %q, which does not go before it", p, r.Identity)
	case p.seen.paused(now):
		w.violate(Orders, "%v accepts the request of %q although an operator holds it", p, r.Identity)
	}
}

// handsOver: rule 3.
func (c *checks) handsOver(p *process, call *call) {
	w, r := c.w, p.seen.snap.Annotations.Request
	if preferred := p.seen.snap.Preferred; p.cfg.Coordinated && preferred != "" && preferred != p.id && !p.seen.paused(p.now().Mono) && !p.promised() {
		r = core.Request{Identity: preferred}
	} else if !p.seen.stands(p.now().Mono) || r.Identity == "" {
		w.violate(Handover, "%v hands over, and no request stands in %s", p, shown(p.seen.snap))
	}
	n := call.notes
	if call.record.Holder != r.Identity || call.record.Key != r.Key || n.Nominated != (core.Nomination{Identity: r.Identity, Transitions: call.record.Transitions}) ||
		n.Marker != (core.Marker{}) || n.Request != (core.Request{}) || call.record.Transitions != min(call.base.Record.Transitions+1, 1<<31-1) {
		w.violate(Handover, "%v hands over to %q of %q, and writes %+v with %+v", p, r.Identity, r.Key, call.record, n)
	}
}

// promised reports whether a request stands that goes before a coordinator's preference.
func (p *process) promised() bool {
	r := p.seen.snap.Annotations.Request
	return p.seen.stands(p.now().Mono) && r.Identity != "" && (r.Accepted || r.Reason == core.ForOperator || p.seen.unfit ||
		p.seen.alone(p) && core.Outranks(r.Key, p.key, p.seen.defaultRevision))
}

// acquires: rules 4, 6, 8 and 9.
func (c *checks) acquires(p *process, call *call) {
	w, s, now := c.w, p.seen.snap, p.now().Mono
	seen := p.seen.recordAt.Until(now)
	holder := ""
	if s.Exists && s.Content == core.Readable {
		holder = s.Record.Holder
	}
	nominated := isNominated(s)
	if p.cfg.Coordinated {
		c.named(p, holder, seen)
	}
	switch {
	case p.awaitsDefault() && !(nominated && holder == p.id):
		w.violate(NoFlapping, "%v takes a lock before it knows the default, %v after its start", p, p.startedAt.Until(now))
	case p.seen.unfit:
		w.violate(Fitness, "%v campaigns, and is unfit", p)
	case nominated && holder == p.id:
		// It cannot give back what somebody of earlier may still act under: it settles.
		if h := s.Annotations.Hold; !p.cfg.Coordinated && !p.seen.asked && h.Holder != p.id && names(call.notes.Marker, call.record) {
			w.violate(Handover, "%v takes a lock that it never asked for", p)
		}
	case !p.cfg.Coordinated && holder == "" && s.Exists && s.Strategy && s.Preferred != "" && s.Preferred != p.id && seen < p.cfg.Lease:
		w.violate(Coordination, "%v takes a free lock that a coordinator means for %q, %v after it was written", p, s.Preferred, seen)
	case holder == p.id && p.seen.duplicate && seen < p.cfg.Lease:
		w.violate(NoFlapping, "%v takes the lock from a process of its own name %v after that has written", p, seen)
	case nominated && seen < p.cfg.Retry:
		w.violate(Handover, "%v passes over the nominee %q %v after it saw the nomination", p, holder, seen)
	case holder == "" && s.Exists && s.Content == core.Readable && !p.mayBeFirst() && seen < p.cfg.RankDelay:
		w.violate(NoFlapping, "%v takes a free lock before those of higher rank had their moment", p)
	case holder != "" && holder != p.id && !nominated && seen < p.waitsFor(s):
		c.preempts(p, s, now)
	}
}

// named: who waits to be named takes no other lock, unless no coordinator has cared for it for three leases.
func (c *checks) named(p *process, holder string, seen time.Duration) {
	need := 3 * p.cfg.Lease
	if holder != "" {
		need += p.waitsFor(p.seen.snap)
	}
	if holder != p.id && seen < need && !p.seen.alone(p) {
		c.w.violate(Coordination, "%v takes a lock of %q that nobody has given it, %v after it was written", p, holder, seen)
	}
}

// waitsFor is the lease of the holder as p has to count it.
func (p *process) waitsFor(s core.Snapshot) time.Duration { return max(p.cfg.Lease, s.Record.Lease) }

// preempts: p overwrites a holder whose lease has not run out.
func (c *checks) preempts(p *process, s core.Snapshot, now core.Instant) {
	w, m := c.w, s.Annotations.Marker
	switch {
	case p.cfg.External:
		if p.seen.ousted && s.Record.Key == p.key && p.seen.oustedKey == p.key {
			w.violate(NoFlapping, "%v preempts %s, of its own key, which has preempted it", p, shown(s))
		}
	case !core.Outranks(p.key, s.Record.Key, p.seen.defaultRevision):
		w.violate(OneAtATime, "%v overwrites %s, whom it does not outrank", p, shown(s))
	case names(m, s.Record) && m.Handover && (p.base.term == nil || p.base.term.q == nil): // ours, and no peer that only looks so
		w.violate(Handover, "%v overwrites %s, which would have handed over", p, shown(s))
	}
	if p.seen.paused(now) {
		w.violate(Orders, "%v preempts %s although an operator holds it", p, shown(s))
	}
	if p.seen.ousted && p.seen.oustedAt.Until(now) < p.cfg.Retry {
		w.violate(NoFlapping, "%v preempts %v after it was preempted itself", p, p.seen.oustedAt.Until(now))
	}
}

// mayBeFirst reports whether nobody can outrank p, as far as it knows.
func (p *process) mayBeFirst() bool {
	if !p.cfg.Ranked {
		return true
	}
	remote := p.key[0] == '^'
	return !remote && (p.seen.defaultRevision.Revision == "" || p.key == p.seen.defaultRevision.Revision)
}

// marks: one's own marker says that one may act; while settling, that of whoever is
// waited for stays.
func (c *checks) marks(p *process, call *call) {
	m, left := call.notes.Marker, call.base.Annotations.Marker
	if names(m, call.record) {
		if s, wait := p.mustWait(p.now().Mono); wait > 0 && !p.alive {
			c.w.violate(Settling, "%v writes its marker %v before the lease of %q has run out", p, wait, s.term.id)
		}
		return
	}
	if call.base.Exists && left != (core.Marker{}) && left.Identity != p.id && m != left {
		c.w.violate(Settling, "%v settles and removes the marker of %s", p, left.Identity)
	}
}

// awaitsDefault reports whether p does not know the default yet, and may still wait for it.
func (p *process) awaitsDefault() bool {
	return p.cfg.Ranked && !p.seen.defaultRevision.Synced && p.startedAt.Until(p.now().Mono) < p.cfg.SyncWait
}
