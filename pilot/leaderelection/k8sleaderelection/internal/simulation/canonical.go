package simulation

import (
	"slices"
	"time"
	"unsafe"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// An exploration merges worlds that differ only in what neither the checks nor Step read any more: periods that are over, writes that
// cannot be met again, and terms that have ended. TestExplore_EqualFutures compares what follows.

// canonical removes what neither the checks nor Step read in this state.
func (p *process) canonical() {
	if p.shown = 1; p.n.p.behind() {
		p.shown = 0
	}
	p.canonicalState()
	p.canonicalTerm()
	p.troubledAt, p.pausedAt = p.amongSends(p.troubledAt), p.amongSends(p.pausedAt)
	learned := p.call != nil && p.call.sentAt < p.learnedAt
	if p.learnedAt = 0; learned {
		p.learnedAt = 1
	}
	if !p.alive || p.work {
		p.returnAt = 0
	}
	if !p.seen.ousted || p.seen.oustedAt.After(p.cfg.Retry) <= p.now().Mono {
		p.seen.ousted, p.seen.oustedAt = false, 0
	}
	if s := &p.seen.snap; names(s.Annotations.Marker, s.Record) && !s.Annotations.Nominated.Uncounted {
		p.seen.forged = true // as with any change of annotations
	}
	if p.seen.request == (core.Request{}) {
		p.seen.requestAt = 0
	}
	if p.seen.snap.Annotations.Hold == (core.Hold{}) {
		p.seen.holdAt = 0
	}
}

// canonicalTerm removes what is known of the latest term, if the process needs another acknowledgement before it acts again.
func (p *process) canonicalTerm() {
	if p.ackedOlder.Mono <= p.ackedSent.Mono {
		p.ackedOlder = core.ClockReading{} // it allows less
	}
	p.newest.term = nil
	if p.alive || p.gate != (core.Validity{}) {
		return
	}
	p.lastGate, p.ackedOlder = core.Validity{}, core.ClockReading{}
	if s := &p.s; s.Phase != core.Following || s.Term != (core.Term{}) {
		return
	}
	p.ackedSent, p.ackedAt, p.anyAck, p.conflicted = core.ClockReading{}, p.w.now, false, false
	if p.call != nil && p.call.op == core.Acquire {
		p.ackedAt = p.call.sentAt // soon
	}
	if r := p.seen.snap.Record; r.Holder != p.id || writeOf(r) != p.newestWrite {
		p.acked = nil
	}
}

// amongSends replaces a time by its order among the times of sending that it is compared with.
func (p *process) amongSends(t Time) Time {
	if t < p.ackedAt {
		return 0
	}
	rank := p.w.now + 1
	if t == p.w.now {
		rank++ // the next send may be now
	}
	for _, c := range p.n.flying {
		if t >= c.sentAt {
			rank++
		}
	}
	if p.call != nil && t >= p.call.sentAt {
		rank++
	}
	return rank
}

// liveWrites appends the writes in the store, in calls, and in what processes know. A write that is in none of them and over cannot be
// met again.
func (w *world) liveWrites(live []core.Write) []core.Write {
	add := func(s core.Snapshot) { live = append(live, writeOf(s.Record)) }
	addCall := func(c *call) {
		live = append(live, writeOf(c.record))
		add(c.base)
		add(c.reply.snap)
	}
	add(w.store.now.snap)
	for _, n := range w.nodes {
		for _, c := range n.flying {
			addCall(c)
		}
		if n.p == nil {
			continue
		}
		if n.p.call != nil {
			addCall(n.p.call)
		}
		for _, s := range []core.Snapshot{n.p.s.Snap, n.p.seen.snap, n.p.newest.snap, n.p.base.snap} {
			add(s)
		}
		own := &n.p.s.Own
		if live = append(live, writeOf(n.p.s.Flight.Record)); int(own.Unseen) == len(own.Writes) {
			live = append(live, own.Writes[0]) // it is sent again
		}
	}
	return live
}

// forget replaces own writes that cannot be met again.
func (f *fingerprinter) forget(p *process) {
	now := core.Stamp(p.n.clocks.wall(f.w.now) / int64(time.Microsecond))
	dead := func(w *core.Write) {
		if 0 < w.Renewed && w.Renewed < now && !slices.Contains(f.live, *w) {
			*w = core.Write{}
		}
	}
	for i := range p.wrote {
		dead(&p.wrote[i])
		dead(&p.s.Own.Writes[i])
	}
	dead(&p.newestWrite)
	dead(&p.s.Own.Acked)
}

// canonicalState removes what Step does not read in this state.
func (p *process) canonicalState() {
	s, now := &p.s, p.now().Mono
	snap := &s.Snap
	if !p.w.mode.Coordinated {
		s.Why = "" // see checks.lost
	}
	if s.Phase != core.Following {
		s.Requesting.Wanted = false // its term ends before it follows again
	}
	switch {
	case s.Flight.Op == core.NoOp:
		s.Flight = core.Call{}
	case s.Flight.Learned == s.Learned:
		s.Flight.Learned = 0
	default:
		s.Flight.Learned = 1
	}
	if s.Phase == core.Following && s.Flight.Op != core.Renew && s.Term == (core.Term{}) {
		s.Own.Renewed, s.Own.SentAt = 0, core.ClockReading{} // they begin with an acquisition
	}
	if !p.cfg.Ranked {
		s.Displaced = core.Displaced{}
	}
	if s.BackOff.Steps == 0 && s.Phase != core.Settling {
		s.BeganAt = 0
	}
	if s.Requesting.AnsweredAt.After(p.cfg.Retry) <= now {
		s.Requesting.AnsweredAt = 0 // no poll is later
	}
	s.Earlier = canonicalEarlier(s.Earlier, now)
	if s.Phase != core.Settling && s.Earlier.SettleAt <= now || s.Earlier.SettleAt <= s.BeganAt {
		s.Earlier.SettleAt = 0
	}
	if snap.Annotations.Request == (record.Request{}) {
		s.Since.Request = 0
	}
	if snap.Annotations.Hold == (core.Hold{}) {
		s.Since.Hold = 0
	}
	restarted := s.Leader.Holder == snap.Record.Holder && s.Leader.Transitions+1 == snap.Record.Transitions
	if snap.Former() == "" && (!restarted || s.Since.Former.After(2*p.cfg.Retry) <= now) {
		s.Since.Former = 0
	}
	if snap.Preferred == "" {
		s.Since.Preferred = 0
	}
	if !snap.Idle() {
		s.Since.Idle = 0
	}
	for _, e := range []*core.Effort{&s.Effort.Reads, &s.Effort.Writes, &s.Effort.Requests} {
		e.Fails, e.Conflicts = min(e.Fails, longestPause), min(e.Conflicts, longestPause)
		switch {
		case e.Fails == 0 && e.Last.After(2*p.cfg.Retry) < now && s.Phase == core.Following: // a holder reads the count
			e.Conflicts, e.Base, e.Last = 0, 0, 0
		case e.Fails == 0 && e.Conflicts == 0:
			e.Base, e.Last = 0, 0
		case e.Last.After(2*p.cfg.Lease) < now && e.Next <= now:
			e.Fails, e.Last = 0, 0 // an older problem
		}
	}
}

// longestPause is the number of failures in a row after which a pause is the longest, with smallTiming.
const longestPause = 6

// canonicalEarlier removes periods that are over.
func canonicalEarlier(e core.Earlier, now core.Instant) core.Earlier {
	if e.Away.Until <= now {
		e.Away = core.Away{}
	}
	if e.Until <= now {
		e.Until = 0
	}
	if e.Former <= now {
		e.Former = 0
	}
	return e
}

// findTerms finds the terms that processes may act in, see in a view, or have to wait for.
func (f *fingerprinter) findTerms() {
	f.oldest, f.kept = ^uint64(0), f.kept[:0]
	keep := func(t *term) {
		if t == nil {
			return
		}
		if f.kept = append(f.kept, t); t.token > 0 {
			f.oldest = min(f.oldest, t.token)
		}
	}
	keep(f.w.store.now.term)
	for _, n := range f.w.nodes {
		if q := n.q; q != nil {
			keep(q.term)
			keep(q.object.term)
			for _, work := range q.works {
				keep(work.term)
			}
		}
		if n.p == nil {
			continue
		}
		keep(n.p.acting)
		keep(n.p.base.term)
		if n.p.call != nil {
			keep(n.p.call.reply.term)
		}
		f.like = *n.p
		f.like.canonicalTerm()
		keep(f.like.acked)
	}
	for _, n := range f.w.nodes {
		if n.p != nil {
			for _, s := range n.p.sights {
				if !f.forgets(n.p, s) {
					f.kept = append(f.kept, s.term)
				}
			}
		}
	}
}

// forgets reports whether a process need not wait for a term, and sees it in no later view.
func (f *fingerprinter) forgets(p *process, s sight) bool {
	shown := s.term == f.w.store.now.term || p.call != nil && s.term == p.call.reply.term
	return !shown && s.at.After(p.cfg.Lease+p.cfg.PeerGrace) <= p.now().Mono
}

// past reports whether no process acts in the term, nor in the terms that it displaced, nor has to wait for them.
func (f *fingerprinter) past(t *term) bool {
	for ; t != nil; t = t.prev {
		if slices.Contains(f.kept, t) {
			return false
		}
	}
	return true
}

// forgetTerms removes terms that are past from what a process has seen.
func (f *fingerprinter) forgetTerms(p *process) {
	f.sights, f.seen = f.sights[:0], f.seen[:0]
	for _, s := range p.sights {
		if !f.forgets(p.n.p, s) {
			f.sights = append(f.sights, s)
		}
	}
	for _, t := range p.seenTerms {
		if !(t.token < f.oldest && f.past(t)) {
			f.seen = append(f.seen, t)
		}
	}
	p.sights, p.seenTerms = f.sights, f.seen
}

// term adds a term. Of terms that are past and were displaced, only whether the first one followed a drained release counts.
func (f *fingerprinter) term(t *term) {
	like := *t
	if t.prev != nil && f.past(t.prev) {
		for first := t.prev; first != nil; first = first.prev {
			like.clean = first.clean
		}
		like.prev = nil
	}
	f.parts(termShape, unsafe.Pointer(&like))
}
