package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// write checks a write against the rules of handovers. Unguarded writes of planted bugs are checked elsewhere.
func (c *checks) write(p *process, call *call) {
	if call.base.Version == unguardedVersion {
		return
	}
	if h := call.annotations.Hold; call.op != core.HandOver && h != (core.Hold{}) && h != p.seen.snap.Annotations.Hold {
		c.w.violate(Orders, "%v writes a hold that no operator requested: %+v", p, h)
	}
	switch call.op {
	case core.SendRequest:
		c.checkRequest(p, call)
	case core.Acquire:
		c.checkAcquire(p, call)
		c.checkMarker(p, call)
	case core.Renew:
		c.checkAcceptance(p, call)
		c.checkMarker(p, call)
	case core.HandOver:
		c.checkHandover(p, call)
	case core.Release:
		// After the process let the term expire, the challenger no longer waits for it.
		if r := p.seen.snap.Annotations.Request; addressed(p.seen.snap) && r.Accepted && r.Identity != "" && p.s.Term != (core.Term{}) {
			c.w.violate(Handover, "%v releases the lock after accepting the request of %q", p, r.Identity)
		}
		if call.annotations != (core.Annotations{}) {
			c.w.violate(Handover, "the release of %v keeps %+v", p, call.annotations)
		}
	case core.NoOp, core.Read:
	}
}

// checkRequest checks rule 1.
func (c *checks) checkRequest(p *process, call *call) {
	w, s, now, r := c.w, p.seen.snap, p.now().Mono, call.annotations.Request
	m := s.Annotations.Marker
	if p.cfg.Coordinated && !p.seen.uncoordinated() {
		w.violate(Coordination, "%v sends a request to %s instead of waiting for the coordinator", p, shown(s))
	}
	if !names(m, s.Record) || !m.Handover || s.Record.Holder == p.id {
		w.violate(Handover, "%v sends a request to %s, which cannot hand over", p, shown(s))
	}
	if r.Identity != p.id || r.Holder != s.Record.Holder || r.Transitions != s.Record.Transitions || r.Accepted {
		w.violate(Handover, "%v sends a request with a wrong name or term: %+v to %s", p, r, shown(s))
	}
	byRank := core.Outranks(p.key, s.Record.Key, p.seen.defaultRevision)
	switch {
	case p.seen.unfit:
		w.violate(Fitness, "%v sends a request although it is unfit", p)
	case m.Unfit:
	case !byRank:
		w.violate(Handover, "%v sends a request to %s without outranking it", p, shown(s))
	case p.seen.paused(now):
		w.violate(Orders, "%v sends a request despite the hold on %s", p, shown(s))
	}
	other := s.Annotations.Request
	if p.seen.pending(now) && (other.Identity == p.id || other.Reason == record.ForOperator || !core.Outranks(p.key, other.Key, p.seen.defaultRevision)) {
		w.violate(Handover, "%v sends a request although one of %q is pending", p, other.Identity)
	}
	p.seen.asked = true
}

// checkAcceptance checks rule 2 and the first half of rule 3.
func (c *checks) checkAcceptance(p *process, call *call) {
	r := call.annotations.Request
	if !r.Accepted || call.base.Annotations.Request.Accepted {
		return
	}
	w, now := c.w, p.now().Mono
	r = p.seen.snap.Annotations.Request
	switch {
	case !addressed(p.seen.snap) || r.Holder != p.id || r.Transitions != call.record.Transitions:
		w.violate(Handover, "%v accepts a request to %s in term %d", p, r.Holder, r.Transitions)
	case now >= p.seen.runsOut():
		w.violate(Handover, "%v accepts the expired request of %q", p, r.Identity)
	case r.Reason == record.ForOperator, p.seen.unfit:
	case !core.Outranks(r.Key, p.key, p.seen.defaultRevision):
		w.violate(Handover, "%v accepts the request of %q, which does not outrank it", p, r.Identity)
	case p.seen.paused(now):
		w.violate(Orders, "%v accepts the request of %q despite a hold", p, r.Identity)
	}
}

// checkHandover checks rule 3.
func (c *checks) checkHandover(p *process, call *call) {
	w, r := c.w, p.seen.snap.Annotations.Request
	if preferred := p.seen.snap.Preferred; p.cfg.Coordinated && !p.seen.uncoordinated() && preferred != "" && preferred != p.id && !p.seen.paused(p.now().Mono) && !p.promised() {
		r = core.Request{Identity: preferred}
	} else if !p.seen.pending(p.now().Mono) || r.Identity == "" {
		w.violate(Handover, "%v hands over without a request in %s", p, shown(p.seen.snap))
	}
	n := call.annotations
	if call.record.Holder != r.Identity || call.record.Key != r.Key || n.Nominated != (core.Nomination{Identity: r.Identity, Transitions: call.record.Transitions}) ||
		n.Marker != (core.Marker{}) || n.Request != (core.Request{}) || call.record.Transitions != min(call.base.Record.Transitions+1, 1<<31-1) {
		w.violate(Handover, "%v hands over to %q with key %q but writes %+v with %+v", p, r.Identity, r.Key, call.record, n)
	}
}

// promised reports whether a request takes precedence over the preference of a coordinator.
func (p *process) promised() bool {
	r := p.seen.snap.Annotations.Request
	return p.seen.pending(p.now().Mono) && r.Identity != "" && (r.Accepted || r.Reason == record.ForOperator || p.seen.unfit ||
		(p.seen.uncoordinated() || !p.seen.named) && core.Outranks(r.Key, p.key, p.seen.defaultRevision) && !p.n.refuses(r.Identity))
}

// checkAcquire checks rules 4, 6, 8 and 9.
func (c *checks) checkAcquire(p *process, call *call) {
	w, s, now := c.w, p.seen.snap, p.now().Mono
	seen := p.seen.recordAt.Until(now)
	holder := ""
	if s.Exists && s.Content == record.Readable {
		holder = s.Record.Holder
	}
	// A nomination that a user wrote next to a record of the holder does not count.
	nominated := isNominated(s) && !p.seen.forged && (p.base.released || p.base.term != nil && p.base.term.named)
	if p.cfg.Coordinated {
		c.checkNamed(p, holder, seen)
	}
	switch {
	case p.awaitsDefault() && !(nominated && holder == p.id):
		w.violate(NoFlapping, "%v acquires a lock without knowing the default, %v after its start", p, p.startedAt.Until(now))
	case p.seen.unfit:
		w.violate(Fitness, "%v campaigns although it is unfit", p)
	case nominated && holder == p.id:
		// The process settles instead of releasing while an earlier holder may act.
		if h := s.Annotations.Hold; !p.cfg.Coordinated && !p.seen.asked && h.Holder != p.id && names(call.annotations.Marker, call.record) {
			w.violate(Handover, "%v acquires a lock that it did not request", p)
		}
	case !p.cfg.Coordinated && p.seen.named && !p.seen.uncoordinated() && holder == "" && s.Exists && s.Strategy && s.Preferred != "" && s.Preferred != p.id && seen < p.cfg.Lease:
		w.violate(Coordination, "%v acquires a free lock that a coordinator promised to %q, %v after the write", p, s.Preferred, seen)
	case holder == p.id && p.seen.duplicate && seen < p.cfg.Lease:
		w.violate(NoFlapping, "%v acquires the lock of a process with its name %v after its write", p, seen)
	case nominated && seen < p.cfg.Retry:
		w.violate(Handover, "%v acquires the lock of nominee %q %v after it saw the nomination", p, holder, seen)
	case holder == "" && s.Exists && s.Content == record.Readable && !p.hasHighestRank() && seen < p.cfg.RankDelay:
		w.violate(NoFlapping, "%v acquires a free lock without the delay for higher ranks", p)
	case holder != "" && holder != p.id && !nominated && seen < p.waitsFor(s):
		c.checkPreempt(p, s, now)
	}
}

// checkNamed checks that a coordinated candidate acquires only if it was named, or if no coordinator acted for
// three leases.
func (c *checks) checkNamed(p *process, holder string, seen time.Duration) {
	need := 3 * p.cfg.Lease
	if holder != "" {
		need += p.waitsFor(p.seen.snap)
	}
	if seen >= need {
		p.seen.alone = true
	}
	if holder != p.id && !p.seen.uncoordinated() {
		c.w.violate(Coordination, "%v acquires a lock of %q without being named, %v after the write", p, holder, seen)
	}
}

// waitsFor returns the lease of the holder that p has to wait for.
func (p *process) waitsFor(s core.Snapshot) time.Duration { return max(p.cfg.Lease, s.Record.Lease) }

// checkPreempt checks the write of p over a holder with a valid lease.
func (c *checks) checkPreempt(p *process, s core.Snapshot, now core.Instant) {
	w, m := c.w, s.Annotations.Marker
	switch {
	case p.cfg.External:
		if p.seen.ousted && s.Record.Key == p.key && p.seen.oustedKey == p.key {
			w.violate(NoFlapping, "%v preempts %s, which has an equal key and preempted it", p, shown(s))
		}
	case !core.Outranks(p.key, s.Record.Key, p.seen.defaultRevision):
		w.violate(OneAtATime, "%v overwrites %s without outranking it", p, shown(s))
	case names(m, s.Record) && m.Handover && (p.base.term == nil || p.base.term.q == nil && !p.base.term.forged): // not a peer with the marker of an incumbent process
		w.violate(Handover, "%v overwrites %s, which would have handed over", p, shown(s))
	}
	if p.seen.paused(now) {
		w.violate(Orders, "%v preempts %s despite a hold", p, shown(s))
	}
	if p.seen.ousted && p.seen.oustedAt.Until(now) < p.cfg.Retry {
		w.violate(NoFlapping, "%v preempts %v after it was preempted itself", p, p.seen.oustedAt.Until(now))
	}
}

// hasHighestRank reports whether no higher rank is possible.
func (p *process) hasHighestRank() bool {
	if !p.cfg.Ranked {
		return true
	}
	remote := p.key[0] == '^'
	return !remote && (p.seen.defaultRevision.Revision == "" || p.key == p.seen.defaultRevision.Revision)
}

// checkMarker checks markers: the own marker only when p may act. While settling, the marker of the previous leader
// stays.
func (c *checks) checkMarker(p *process, call *call) {
	m, left := call.annotations.Marker, call.base.Annotations.Marker
	if names(m, call.record) {
		if s, wait := p.mustWait(p.now().Mono); wait > 0 && !p.alive {
			c.w.violate(Settling, "%v writes its marker %v before the lease of %q expires", p, wait, s.term.id)
		}
		return
	}
	if call.base.Exists && left != (core.Marker{}) && left.Identity != p.id && m != left {
		c.w.violate(Settling, "%v settles and removes the marker of %s", p, left.Identity)
	}
}

// awaitsDefault reports whether p may still wait for the default revision.
func (p *process) awaitsDefault() bool {
	return p.cfg.Ranked && !p.seen.defaultRevision.Synced && p.startedAt.Until(p.now().Mono) < p.cfg.SyncWait
}
