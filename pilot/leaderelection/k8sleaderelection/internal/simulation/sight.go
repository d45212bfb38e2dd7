package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// sight is when a process last saw a term, by its own clock. It is independent of the core.
type sight struct {
	term *term
	at   core.Instant // last change of its record
	sum  uint64
	// marked: it had a marker when last seen.
	marked bool
}

// sees records a view that is shown to the process. A smaller version counts as old if it comes from the watch
// or from a call sent before the last new view.
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
		p.reached = v.snap.Version // an absent lock has no version
	}
	if m := v.snap.Annotations.Marker; m != p.leftBehind {
		p.leftBehind, p.leftAt = m, p.now().Mono
		if names(m, v.snap.Record) {
			p.leftBehind = core.Marker{}
		}
	}
	if v.released {
		p.sights = p.sights[:0] // the process that released had waited for the others
		return
	}
	if v.term != nil && v.term.p != p && v.term.marked {
		p.forgetBefore(v.term) // a leader that acquired the lock from them has waited
	}
	if t := v.term; t != nil && t.id == "" && v.snap.Content == record.Readable && t.prev != nil {
		// A release by a peer, or an emptied record of a holder that has not acted yet.
		p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term.id == t.prev.id && !s.marked })
	}
	if v.term == nil || v.term.named {
		return
	}
	// A process of one name acquired the lock, so an earlier one of that name has ended. A live duplicate has not.
	p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term != v.term && s.term.id == v.term.id && s.term.over() })
	if p.harmless(v) {
		// A live process of its name may have written an equal record. From then on p takes its record for an own one.
		p.sights = slices.DeleteFunc(p.sights, func(s sight) bool { return s.term == v.term })
		return
	}
	now := p.now().Mono
	if v.term.p == nil && v.term.id == "" && v.snap.Content != record.Unreadable {
		now = p.leftAt // without a holder, the marker counts
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

// forgetBefore removes terms that were displaced by a later one. If the first of these followed a drained
// release, all earlier terms have ended.
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

// over reports whether the process of the term has ended.
func (t *term) over() bool { return t.p != nil && t.p.ended || t.q != nil && t.q.ended }

func (p *process) blank() bool { return p.newest == view{} }

// harmless reports whether the process need not wait for the term: it is its own, of a dead process with its
// name, or has no holder and no marker of another process.
func (p *process) harmless(v view) bool {
	if v.term.p == nil && v.snap.Content != record.Unreadable && v.snap.Record.Holder == "" {
		m := v.snap.Annotations.Marker
		return m == (core.Marker{}) || m.Identity == p.id
	}
	return v.term.p == p || v.term.id == p.id && (v.term.marked || v.term.namesake || p.stamped(v.snap.Record))
}

// stamped reports whether the record has term and stamp of an own write. Two processes of one name may write equal records.
func (p *process) stamped(r core.Record) bool {
	return slices.Contains(p.wrote[:], writeOf(r)) || r.Renewed != 0 && writeOf(r) == p.newestWrite
}

func writeOf(r core.Record) core.Write {
	return core.Write{Renewed: r.Renewed, Transitions: r.Transitions}
}

// mustWait returns a term that the process has seen and whose holder may still act.
func (p *process) mustWait(now core.Instant) (sight, time.Duration) {
	for _, s := range p.sights {
		wait := p.cfg.Lease
		forged := s.term.q == nil && s.marked // a user invented the holder, and its marker: docs/safety.md
		if s.term.p == nil && s.term.id != "" && s.term.id != p.id && !s.term.namesake && !forged {
			wait += p.cfg.PeerGrace
		}
		if left := now.Until(s.at.After(wait)); left > 0 {
			return s, left
		}
	}
	return sight{}, 0
}

// unknowable reports whether neither p nor a later leader that it has seen could detect the term of q. p relies on the marker of that
// leader.
func (p *process) unknowable(q *process) bool {
	t := q.acting
	return p.unknowableTerm(t) || t != nil && slices.ContainsFunc(p.seenTerms, func(u *term) bool {
		return u.marked && u.token > t.token && u.p != p && u.p.unknowableTerm(t)
	})
}

// unknowableTerm reports whether the record was removed before p had seen the term or a later one, or whether
// the rest looked like a release, also if a peer released it.
func (p *process) unknowableTerm(t *term) bool {
	if t != nil && t.hidden && !slices.Contains(p.seenTerms, t) {
		return true
	}
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
