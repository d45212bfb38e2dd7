package simulation

import "slices"

// besidePeers is called when p starts its functions: none of a peer may run, as far as
// the peer stops within its lease and PeerGrace, and as far as p can know of it.
func (c *checks) besidePeers(p *process) {
	for _, n := range c.w.nodes {
		if n.q == nil {
			continue
		}
		for _, work := range n.q.works {
			if !work.over && !c.excused(p, n.q, work) {
				c.w.violate(Peers, "%v starts while functions of %v run", p, n.q)
			}
		}
	}
}

// excused reports whether p may start although a peer's functions run: it has released
// the lock itself, before they returned; it has overwritten p's own record, and p has
// not heard of that yet; it goes by the marker of one of ours, which ends with its
// lease; another peer, or a hand, released the lock in its stead, or a hand removed
// every word of it before p could see any; or it was paused and has outlived its lease.
func (c *checks) excused(p *process, q *peer, work *peerWork) bool {
	switch {
	case work.let, work.term.wiped, work.term.namesake, q.pausedAt > q.wroteAt:
		return true
	case p.acked != nil && p.acked.removedWith != nil:
		return true // p's own record was removed before it was answered, and q found no lock
	case work.term.overwrote(p.acked):
		return true // it took the lock from p, which has not heard of it yet
	case work.term.letGo && !slices.Contains(p.seenTerms, work.term):
		return true
	}
	return p.unknowableTerm(work.term)
}

// overwrote reports whether t came after old, with nothing but overwriting in between.
func (t *term) overwrote(old *term) bool {
	for ; t != nil; t = t.prev {
		if t == old {
			return true
		}
	}
	return false
}

// peerWrites is called before a peer's write is applied. One that takes a lock for free
// or for expired relies on what ours have promised: that none of them acts any more.
func (c *checks) peerWrites(q *peer, now view, expired bool) {
	if !expired {
		return
	}
	for _, p := range c.w.procs {
		if p.mayAct() && p.acting != nil && !p.acting.disturbed {
			c.w.violate(Peers, "%v takes %s while %v may act", q, shown(now.snap), p)
		}
	}
}
