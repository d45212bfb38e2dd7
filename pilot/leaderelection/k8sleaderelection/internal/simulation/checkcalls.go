package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// maxRate limits the calls of one process in a second.
const maxRate = 15

func (c *checks) send(p *process, call *call) {
	w := c.w
	if p.alive && (call.op == core.Release || call.op == core.HandOver) {
		w.violate(Release, "%v sends %s while its run functions run", p, call.op)
	}
	c.write(p, call)
	if p.alive && call.op == core.Acquire {
		w.violate(OneTerm, "%v begins a term while the previous run functions run", p)
	}
	if call.op != core.Read && (call.base.Exists != p.base.snap.Exists || call.base.Exists && call.base.Version != p.base.snap.Version) && call.base.Version != unguardedVersion {
		w.violate(OwnLockOnly, "%v decided on %s but knows %s", p, shown(call.base), shown(p.base.snap))
	}
	if (call.op == core.Acquire || call.op == core.Renew) && writeOf(call.record) != p.wrote[0] {
		p.wrote = [4]core.Write{writeOf(call.record), p.wrote[0], p.wrote[1], p.wrote[2]}
		p.wroteAt = call.sent
	}
	call.firstSent = p.wroteAt
	call.foreign = p.base.foreign
	p.sentCalls++
	c.countCall(p)
	if call.op == core.Read {
		p.sentReads++
	}
	p.calls = append(p.calls, w.now)
	for w.now.since(p.calls[0]) > time.Second {
		p.calls = p.calls[1:]
	}
	if len(p.calls) == maxRate {
		w.violate(Quiet, "%v sends %d calls within a second", p, maxRate)
	}
}

// checkGuard is called before the store applies a write.
func (w *world) checkGuard(c *call, now view, unguarded bool) {
	if unguarded && (c.decidedOn != now.snap.Version) {
		w.violate(OwnLockOnly, "%v: %s, decided on %d, overwrites %s", c.p, c.op, c.decidedOn, shown(now.snap))
	}
	if now.snap.Exists && c.foreign != now.foreign {
		w.violate(NothingLost, "%s of %v removes metadata of others", c.op, c.p)
	}
	w.checkCount(c, now)
	if c.op == core.Release || c.op == core.HandOver {
		w.checkRelease(c, now)
	}
	if c.op == core.Acquire && now.snap.Exists && now.snap.Content == record.Unreadable {
		i := slices.Index(w.nodes, c.p.n)
		if waited := now.term.unreadAt[i].Until(c.sent.Mono); waited < w.timing.lease {
			w.violate(NothingLost, "%v replaces an unreadable record after %v", c.p, waited)
		}
	}
}

// checkRelease checks that no process may act when a release arrives.
func (w *world) checkRelease(c *call, now view) {
	// Another process wrote it as holder, so it does not act. A user may have changed the annotation.
	unasked := (now.released || now.term != nil && now.term.named) && now.snap.Record.Holder == c.p.id
	// A dead process of the same name may have written this record late.
	late := now.term != nil && now.term.id == c.p.id && c.p.stamped(now.snap.Record)
	if !unasked && !late && (now.term == nil || now.term.p != c.p) {
		w.violate(OwnLockOnly, "the release of %v clears %s, which it did not write", c.p, shown(now.snap))
	}
	for _, q := range w.procs {
		duplicate := q != c.p && q.id == c.p.id
		if q.mayAct() && !duplicate && !q.duplicated() && !c.p.unknowable(q) {
			w.violate(Release, "the release of %v arrives while %v may act", c.p, q)
		}
	}
}

// committed is called after a write of an incumbent process changed the lock.
func (w *world) committed(c *call, _, now view) {
	if c.op == core.HandOver {
		w.checkHandovers(now)
	}
	if c.op == core.HandOver && w.mode.Net == 0 && !w.mode.Slow {
		w.checkNominee(now)
	}
	if c.op == core.Release {
		w.checks.herd.event()
	}
	if c.op != core.Release || w.mode.Slow || w.mode.Net > 0 || w.mode.Edits > 0 || w.mode.Peers > 0 || w.mode.Refusals > 0 || w.mode.Lag > 0 || w.mode.Silences > 0 {
		return // other modes have valid reasons to wait
	}
	w.checkPrompt(now)
}

// checkPrompt checks in an orderly world that a follower acquires a released lock.
func (w *world) checkPrompt(released view) {
	const soon = 300 * time.Millisecond
	if !w.anyFollower() {
		return
	}
	before := w.checks.orderly
	w.after(soon, func() {
		if w.checks.orderly == before && w.store.now.term == nil && w.store.now.snap == released.snap && w.anyFollower() {
			w.violate(Prompt, "no candidate has acquired the lock %v after its release", soon)
		}
	})
}

// checkNominee checks that a nominee that sent a request acquires the lock immediately.
func (w *world) checkNominee(nomination view) {
	const soon = 300 * time.Millisecond
	n := w.nodeOf(nomination.snap.Record.Holder)
	if n == nil || !n.attends() || n.trouble() || n.cooled() || n.p.lag > 0 || !n.p.seen.asked || n.p.seen.unfit {
		return
	}
	p := n.p
	w.after(soon, func() {
		// Only one call is in flight, so the process waits for a call that hangs.
		hangs := p.call != nil && p.call.sentAt < w.now.add(-soon) || p.troubledAt >= w.now.add(-soon)
		if n.p == p && n.attends() && !hangs && w.store.now.snap.Version == nomination.snap.Version && !p.seen.unfit {
			w.violate(Prompt, "%v has not acquired the lock %v after its nomination", p, soon)
		}
	})
}

func (w *world) anyFollower() bool {
	for _, n := range w.nodes {
		p := n.p
		if p == nil || p.s.Phase != core.Following || p.seen.unfit || p.barred || n.trouble() || !n.attends() || p.awaitsDefault() {
			continue
		}
		if now := p.now().Mono; p.s.Known.Outdated() && p.s.Effort.Reads.Next > now {
			continue // its last read failed, and it repeats reads with a pause
		}
		if p.lostRaces > 1 {
			continue // it waits for its turn
		}
		// A candidate that would have to settle waits for one RetryPeriod. It settles at most for its own lease and PeerGrace, for any
		// lease an earlier record had.
		now := p.now().Mono
		wait := now.Until(p.s.Earlier.ActUntil())
		if settles := 0 < wait && wait <= p.cfg.Lease+p.cfg.PeerGrace; !settles && p.s.BackOff.Until <= now && !n.cooled() {
			return true
		}
	}
	return false
}

// attends reports whether changes of the lock reach the process and no hanging call delays it.
func (n *node) attends() bool {
	hangs := n.p != nil && n.p.call != nil && n.w.now.since(n.p.call.sentAt) > slow/4
	return !hangs && n.p != nil && n.p.watching && !n.p.s.Stopping && !n.paused && max(n.apiDown, n.muted.add(slow)) < n.w.now && !n.p.cut
}

// leaderChanged is called when run functions start, are cancelled, or end with their process.
func (c *checks) leaderChanged() {
	w := c.w
	leaders := 0
	for _, n := range w.nodes {
		if n.leads() {
			leaders++
		}
	}
	if c.settledOnce && w.mode.Barred == 0 {
		w.violate(Prompt, "the leader changed without a cause")
	}
	if idle := w.now.since(max(c.leaderless, c.busyAt)); w.mode.mild() && w.outer == nil && leaders > 0 && idle > w.idle() {
		w.violate(Prompt, "no leader for %v without a cause", idle)
	}
	c.leaderless = w.now
	if leaders > 0 {
		c.leaderless = Time(1 << 62)
	}
}

// checkSettled is called at the end of the bound: the candidate of the highest rank leads, and nothing may
// change afterwards.
func (w *world) checkSettled() {
	if w.outer != nil {
		w.checkInside()
		return
	}
	if w.postponed() || w.disagree() {
		return
	}
	w.checks.settledOnce = true
	var leader *node
	for _, n := range w.nodes {
		if n.p != nil {
			n.p.sentAtCheck, n.p.sentReads = n.p.sentCalls, 0
		}
		if n.leads() {
			leader = n
		}
	}
	if leader == nil && w.mode.Barred > 0 && w.now.since(w.checks.leaderless) < w.timing.idle() {
		return // a leader has just handed over to a candidate that cannot acquire the lock
	}
	able := slices.ContainsFunc(w.nodes, func(n *node) bool { return n.p != nil && !n.trouble() || n.q != nil })
	if leader == nil && able {
		w.violate(Prompt, "no leader %v after the calm began", w.now.since(w.calm))
	}
	if leader == nil {
		return
	}
	if len(w.coordinators) > 0 {
		w.checkWish(leader)
		return
	}
	if w.mode.Removed && !leader.p.seen.alone {
		return // it restarted before it wrote its marker, so no process can read from the lock that there is no coordinator
	}
	for _, n := range w.nodes {
		if w.mode.External && !n.idle() && n.key > leader.key {
			w.violate(Prompt, "%s leads with key %s %v after the calm began; %s has key %s", leader.name, leader.key, w.now.since(w.calm), n.name, n.key)
			return
		}
		if w.mode.Ranked && !w.held() && !n.idle() && !n.trouble() && !n.cooled() && !leader.refuses("") && !(n.p != nil && n.p.blind) && core.Outranks(n.key, leader.key, w.defaultRevision) {
			w.violate(Prompt, "%s leads with key %s %v after the calm began; the default is %s and %s has key %s",
				leader.name, leader.key, w.now.since(w.calm), w.defaultRevision.Revision, n.name, n.key)
			return
		}
	}
}

// postponed repeats checkSettled later if a leader refuses the requests of nominees that failed before
// the calm, if a cool-down has just ended or ends in the quiet time, or if a coordinator prefers a candidate again after a pause.
func (w *world) postponed() bool {
	rest := w.rest
	if w.refusing > 0 {
		rest = max(rest, w.refusing.add(w.timing.bound()))
	}
	for _, n := range w.nodes {
		if n.p != nil && n.p.s.Failed.Until != 0 {
			rest = max(rest, n.clocks.when(n.p.s.Failed.Until).add(w.timing.bound()))
		}
		if n.p != nil && n.p.cooledUntil != 0 && n.clocks.when(n.p.cooledUntil) < w.end {
			rest = max(rest, n.clocks.when(n.p.cooledUntil).add(w.timing.bound()))
		}
	}
	for _, c := range w.coordinators {
		for _, m := range c.memory {
			if m.skipped != 0 {
				rest = max(rest, m.skipped.add(w.timing.bound()))
			}
		}
	}
	if rest == w.rest || w.waited {
		return false
	}
	w.waited = true
	w.rest = rest
	w.end = w.rest.add(w.timing.quiet)
	w.at(w.rest, w.checkSettled)
	return true
}

// disagree reports whether two coordinators may change the leader for as long as their pauses grow. A coordinator pauses for a candidate
// that did not acquire the lock. Each counts only what it has done itself. A process without a watch may miss each nomination and
// preference, because both end after electionDuration.
func (w *world) disagree() bool {
	return len(w.coordinators) > 1 && slices.ContainsFunc(w.nodes, func(n *node) bool { return n.coordinated() && n.p != nil && n.p.polls() })
}

// polls reports whether the process may miss what a coordinator writes.
func (p *process) polls() bool { return p.forbidden && p.cfg.Retry > electionDuration }

// checkWish checks that the candidate preferred by the coordinators leads.
func (w *world) checkWish(leader *node) {
	if p := leader.p; p != nil && p.polls() {
		return
	}
	if want := w.coordinators[0].best(); w.mode.Uncoordinated == 0 && leader.name != want && w.coordinators[0].of(leader.name).spared < w.now {
		w.violate(Prompt, "%s leads %v after the calm began; the coordinators would have %s", leader.name, w.now.since(w.calm), want)
	}
}

// held reports whether the present holder has a hold.
func (w *world) held() bool {
	s := w.store.now.snap
	return s.Annotations.Hold.Holder != "" && s.Annotations.Hold.Holder == s.Record.Holder && s.Annotations.Hold.Transitions == s.Record.Transitions
}

// checkEnd checks the calls of the quiet time.
func (w *world) checkEnd() {
	if w.disagree() || slices.ContainsFunc(w.nodes, func(n *node) bool {
		return n.p != nil && n.p.work && n.clocks.when(n.p.s.Failed.Until) > w.rest // it refuses requests, and their challengers repeat them
	}) {
		return
	}
	rest := w.end.since(w.rest)
	writes := int(float64(rest)/float64(w.timing.retry)*(1+delta)) + 1
	for _, n := range w.nodes {
		p := n.p
		if p == nil || n.trouble() || w.mode.Uncoordinated > 0 && (p.work || n.uncoordinated) || w.mode.Barred > 0 {
			continue // requests by rank are refused
		}
		sent := p.sentCalls - p.sentAtCheck
		switch {
		case p.work && (sent > writes || p.sentReads > 0):
			w.violate(Quiet, "leader %v sent %d calls in %v, %d of them reads", p, sent, rest, p.sentReads)
		case !p.work && p.watching && sent > 0 && w.slow.total()*11/10 < 2*w.timing.retry: // otherwise the leader is silent
			w.violate(Quiet, "follower %v with a watch sent %d calls in %v", p, sent, rest)
		}
	}
}
