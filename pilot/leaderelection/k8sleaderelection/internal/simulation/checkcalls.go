package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// maxRate bounds the calls of one process in a second, whatever happens.
const maxRate = 15

// send is called when p sends a call.
func (c *checks) send(p *process, call *call) {
	w := c.w
	if p.alive && (call.op == core.Release || call.op == core.HandOver) {
		w.violate(Release, "%v sends %s while its functions run", p, call.op)
	}
	c.write(p, call)
	if p.alive && call.op == core.Acquire {
		w.violate(OneTerm, "%v begins a term while its former functions run", p)
	}
	if call.op != core.Read && (call.base.Exists != p.base.snap.Exists || call.base.Exists && call.base.Version != p.base.snap.Version) && call.base.Version != unguardedVersion {
		w.violate(OwnLockOnly, "%v decided on %s and knows %s", p, shown(call.base), shown(p.base.snap))
	}
	if (call.op == core.Acquire || call.op == core.Renew) && call.record.Renewed != p.wrote[0] {
		p.wrote = [4]core.Stamp{call.record.Renewed, p.wrote[0], p.wrote[1], p.wrote[2]}
	}
	call.foreign = p.base.foreign
	p.sentCalls++
	c.spends(p)
	if call.op == core.Read {
		p.sentReads++
	}
	p.calls = append(p.calls, w.now)
	for w.now.since(p.calls[0]) > time.Second {
		p.calls = p.calls[1:]
	}
	w.result.Rate = max(w.result.Rate, len(p.calls))
	if len(p.calls) == maxRate {
		w.violate(Quiet, "%v sends %d calls within a second", p, maxRate)
	}
}

// checkGuard is called when the store is about to apply a write.
func (w *world) checkGuard(c *call, now view, unguarded bool) {
	if unguarded && (c.decidedOn != now.snap.Version) {
		w.violate(OwnLockOnly, "%v's %s, decided on %d, overwrites %s", c.p, c.op, c.decidedOn, shown(now.snap))
	}
	if now.snap.Exists && c.foreign != now.foreign {
		w.violate(NothingLost, "%v's %s loses what others wrote on the lock", c.p, c.op)
	}
	w.checkCount(c, now)
	if c.op == core.Release || c.op == core.HandOver {
		w.checkRelease(c, now)
	}
	if c.op == core.Acquire && now.snap.Exists && now.snap.Content == core.Unreadable {
		i := slices.Index(w.nodes, c.p.n)
		if waited := now.term.unreadAt[i].Until(c.sent.Mono); waited < w.timing.lease {
			w.violate(NothingLost, "%v replaces an unreadable record after %v", c.p, waited)
		}
	}
}

// checkRelease: a release says that nobody acts, so nobody may.
func (w *world) checkRelease(c *call, now view) {
	unasked := (now.released || now.term != nil && now.term.named) && now.snap.Annotations.Nominated.Identity == c.p.id && now.snap.Record.Holder == c.p.id
	// A dead process of its name can have written, late, what looks like its own.
	late := now.term != nil && now.term.id == c.p.id && c.p.stamped(now.snap.Record)
	if !unasked && !late && (now.term == nil || now.term.p != c.p) {
		w.violate(OwnLockOnly, "%v's release clears %s, which it did not write", c.p, shown(now.snap))
	}
	for _, q := range w.procs {
		duplicate := q != c.p && q.id == c.p.id
		if q.mayAct() && !duplicate && !q.duplicated() && !c.p.unknowable(q) {
			w.violate(Release, "%v's release arrives while %v may act", c.p, q)
		}
	}
}

// committed is called when a write of ours has changed the lock.
func (w *world) committed(c *call, _, now view) {
	if c.op == core.HandOver && w.mode.Net == 0 {
		w.checkNominee(now)
	}
	if c.op != core.Release || w.mode.Net > 0 || w.mode.Edits > 0 || w.mode.Peers > 0 || w.mode.Refusals > 0 || w.mode.Lag > 0 || w.mode.Silences > 0 {
		return // elsewhere there are good reasons to wait
	}
	w.checkPrompt(now)
}

// checkPrompt: in an orderly world, those who see a release act on it.
func (w *world) checkPrompt(released view) {
	const soon = 300 * time.Millisecond
	if !w.anyFollower() {
		return
	}
	before := w.checks.orderly
	w.after(soon, func() {
		if w.checks.orderly == before && w.store.now.term == nil && w.store.now.snap == released.snap && w.anyFollower() {
			w.violate(Prompt, "nobody has taken the lock %v after its release", soon)
		}
	})
}

// checkNominee: a nominee that is there, and asked, takes the lock at once.
func (w *world) checkNominee(nomination view) {
	const soon = 300 * time.Millisecond
	n := w.nodeOf(nomination.snap.Record.Holder)
	if n == nil || !n.attends() || n.trouble() || n.p.lag > 0 || !n.p.seen.asked || n.p.seen.unfit {
		return
	}
	p := n.p
	w.after(soon, func() {
		// A call that hangs is waited for: there is only one under way.
		hangs := p.call != nil && p.call.sentAt < w.now.add(-soon) || p.troubledAt >= w.now.add(-soon)
		if n.p == p && n.attends() && !hangs && w.store.now.snap.Version == nomination.snap.Version && !p.seen.unfit {
			w.violate(Prompt, "%v has not taken the lock %v after it was nominated", p, soon)
		}
	})
}

func (w *world) anyFollower() bool {
	for _, n := range w.nodes {
		p := n.p
		if p == nil || p.s.Phase != core.Following || p.seen.unfit || !n.attends() || p.awaitsDefault() {
			continue
		}
		// One that would have to settle lets others go first for a RetryPeriod.
		if now := p.now().Mono; p.s.BackOff.Until <= now && p.s.Earlier.Until <= now {
			return true
		}
	}
	return false
}

// attends reports whether what happens to the lock is bound to reach the process here,
// and whether it is free to act on that: there is only one call under way.
func (n *node) attends() bool {
	hangs := n.p != nil && n.p.call != nil && n.w.now.since(n.p.call.sentAt) > slow/4
	return !hangs && n.p != nil && n.p.watching && !n.p.s.Stopping && !n.paused && n.apiDown < n.w.now && !n.p.cut
}

// leaderChanged is called when functions start, are told to stop, or die.
func (c *checks) leaderChanged() {
	w := c.w
	leaders := 0
	for _, n := range w.nodes {
		if n.leads() {
			leaders++
		}
	}
	if c.settledOnce {
		w.violate(Prompt, "the leader changed although nothing happened")
	}
	w.result.Leaderless = max(w.result.Leaderless, w.now.since(c.leaderless))
	if idle := w.now.since(max(c.leaderless, c.busyAt)); w.mode.mild() && leaders > 0 && idle > w.timing.idle()+w.mode.uncared(w.timing) {
		w.violate(Prompt, "nobody acted for %v, and nothing was in the way", idle)
	}
	c.leaderless = w.now
	if leaders > 0 {
		c.leaderless = Time(1 << 62)
	}
	c.lastChange = w.now
}

// checkSettled is when the calm has lasted long enough: one leads, of the default
// revision if somebody of it lives, and from now on nothing may change.
func (w *world) checkSettled() {
	w.checks.settledOnce = true
	w.result.Settled = max(0, w.checks.lastChange.since(w.calm))
	var leader *node
	for _, n := range w.nodes {
		if n.p != nil {
			n.p.sentAtCheck, n.p.sentReads = n.p.sentCalls, 0
		}
		if n.leads() {
			leader = n
		}
	}
	if leader == nil {
		w.violate(Prompt, "nobody leads %v after the calm began", w.now.since(w.calm))
		return
	}
	if w.mode.Coordinated {
		w.checkWish(leader)
		return
	}
	for _, n := range w.nodes {
		if w.mode.External && !n.idle() && n.key > leader.key {
			w.violate(Prompt, "%s leads, of key %s, %v after the calm began; %s is of key %s", leader.name, leader.key, w.now.since(w.calm), n.name, n.key)
			return
		}
		if w.mode.Ranked && !w.held() && !n.idle() && !(n.p != nil && n.p.blind) && core.Outranks(n.key, leader.key, w.defaultRevision) {
			w.violate(Prompt, "%s leads, of key %s, %v after the calm began; the default is %s and %s is of key %s",
				leader.name, leader.key, w.now.since(w.calm), w.defaultRevision.Revision, n.name, n.key)
			return
		}
	}
}

// checkWish: who leads is whom the coordinators would have, if all take part that they know.
func (w *world) checkWish(leader *node) {
	if want := w.coordinators[0].best(); w.mode.Loners == 0 && leader.name != want && w.coordinators[0].spared[leader.name] < w.now {
		w.violate(Prompt, "%s leads %v after the calm began; the coordinators would have %s", leader.name, w.now.since(w.calm), want)
	}
}

// held reports whether an operator's hold may still stand on the present holder.
func (w *world) held() bool {
	s := w.store.now.snap
	return s.Annotations.Hold.Holder != "" && s.Annotations.Hold.Holder == s.Record.Holder && s.Annotations.Hold.Transitions == s.Record.Transitions
}

// checkEnd looks at what was sent in the rest of the calm.
func (w *world) checkEnd() {
	rest := w.end.since(w.rest)
	writes := int(float64(rest)/float64(w.timing.retry)*(1+delta)) + 1
	for _, n := range w.nodes {
		p := n.p
		if p == nil {
			continue
		}
		sent := p.sentCalls - p.sentAtCheck
		switch {
		case p.work && (sent > writes || p.sentReads > 0):
			w.violate(Quiet, "%v, leading, sent %d calls in %v, %d of them reads", p, sent, rest, p.sentReads)
		case !p.work && p.watching && sent > 0:
			w.violate(Quiet, "%v, following with its watch up, sent %d calls in %v", p, sent, rest)
		}
	}
}
