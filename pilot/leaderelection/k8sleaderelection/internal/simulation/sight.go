package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// sight records when a process last saw a term, by its own clock: the simplest account of
// the holders that it has to wait for, kept beside the core's.
type sight struct {
	term *term
	at   core.Instant // when its record was last new
	sum  uint64
	// marked: it was acting when last seen.
	marked bool
}

// sees notes what the process is shown. What a watch has shown, or was asked for before it learned what
// it knows, and has a smaller version, is taken for old, and rightly so, unless the store was restored: that
// shows in the next answer.
func (p *process) sees(v view, maybeOld bool) {
	p.fresh = p.blank() || v.newer(p.newest) && !(maybeOld && v.snap.Version < p.reached)
	if !p.fresh {
		return
	}
	p.learnedAt = p.w.now
	if t := v.term; t != nil && !slices.Contains(p.seenTerms, t) {
		p.seenTerms = append(p.seenTerms, t)
	}
	p.newest = v
	if p.reached = max(p.reached, v.snap.Version); v.snap.Exists {
		p.reached = v.snap.Version // a lock that is absent does not tell its version
	}
	p.seenUpTo[v.history%histories] = v.snap.Version
	if m := v.snap.Annotations.Marker; m != p.leftBehind {
		p.leftBehind, p.leftAt = m, p.now().Mono
		if names(m, v.snap.Record) {
			p.leftBehind = core.Marker{}
		}
	}
	if v.released {
		p.sights = p.sights[:0] // the one who released had waited for the others
		return
	}
	if v.term != nil && v.term.p != p && names(v.snap.Annotations.Marker, v.snap.Record) {
		p.forgetBefore(v.term) // who took the lock from them, and acts, has waited
	}
	if t := v.term; t != nil && t.id == "" && v.snap.Content == core.Readable && t.prev != nil {
		// A peer's release; or an emptied record of a holder that has not acted yet.
		p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term.id == t.prev.id && !s.marked })
	}
	if v.term == nil || v.term.named || p.harmless(v) {
		return
	}
	now := p.now().Mono
	if v.term.p == nil && v.term.id == "" && v.snap.Content != core.Unreadable {
		now = p.leftAt // nobody holds it; what counts is the marker that was left
	}
	for i := range p.sights {
		if s := &p.sights[i]; s.term == v.term {
			s.marked = names(v.snap.Annotations.Marker, v.snap.Record)
			if s.sum != v.snap.Sum && v.term.id != p.id {
				s.at, s.sum = now, v.snap.Sum
			}
			return
		}
	}
	p.sights = append(p.sights, sight{term: v.term, at: now, sum: v.snap.Sum, marked: names(v.snap.Annotations.Marker, v.snap.Record)})
}

// forgetBefore drops what was seen of those that a term displaced. If the first in that
// chain took the lock after a drained release, whoever released it had waited for all
// that came before.
func (p *process) forgetBefore(now *term) {
	first := now
	for ; first.prev != nil; first = first.prev {
		displaced := first.prev
		p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term == displaced })
	}
	if first.clean {
		p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term != now })
	}
}

func (p *process) blank() bool { return p.newest == view{} }

// harmless reports whether the term needs no waiting for: it is one's own; or that of
// a dead process whose name one has, and which had begun to act, or whose late write
// looks like what one has written oneself; or nobody's, and the marker that tells of
// an earlier one is one's own.
func (p *process) harmless(v view) bool {
	if v.term.p == nil && v.snap.Content != core.Unreadable && v.snap.Record.Holder == "" {
		m := v.snap.Annotations.Marker
		return m == (core.Marker{}) || m.Identity == p.id
	}
	return v.term.p == p || v.term.id == p.id && (v.term.marked || v.term.namesake || p.stamped(v.snap.Record))
}

// stamped reports whether the record carries the stamp of a write of p's own. Two of one
// name that write over the same record can give it the same.
func (p *process) stamped(r core.Record) bool {
	return slices.Contains(p.wrote[:], r.Renewed) || r.Renewed != 0 && r.Renewed == p.newestStamp
}

// mustWait returns a term that the process has seen, that did not end by a drained
// release, and whose holder may still act as far as the process can know.
func (p *process) mustWait(now core.Instant) (sight, time.Duration) {
	for _, s := range p.sights {
		wait := p.cfg.Lease
		if s.term.p == nil && s.term.id != "" && s.term.id != p.id && !s.term.namesake {
			wait += p.cfg.PeerGrace
		}
		if left := now.Until(s.at.After(wait)); left > 0 {
			return s, left
		}
	}
	return sight{}, 0
}

// unknowable reports whether p cannot know that q may act.
func (p *process) unknowable(q *process) bool {
	return p.unknowableTerm(q.acting) || p.unknowableWrite(q)
}

// unknowableTerm: somebody removed the record, and p had seen neither that term nor
// any that came after it until then; or what was left said what a release says.
func (p *process) unknowableTerm(t *term) bool {
	if t == nil || t.removedWith == nil {
		return false
	}
	if t.disguised {
		return true
	}
	for later := t.removedWith; later != nil; later = later.prev {
		if slices.Contains(p.seenTerms, later) {
			return false
		}
		if later == t {
			break
		}
	}
	return true
}

// unknowableWrite: a restore undid the write that q acts by, and p had seen nothing
// of what it undid: to p, nothing has changed.
func (p *process) unknowableWrite(q *process) bool {
	for _, r := range p.w.store.restores {
		if r.history == q.ackedVersion.history && q.ackedVersion.version > r.version && p.seenUpTo[r.history%histories] <= r.version {
			return true
		}
	}
	return false
}
