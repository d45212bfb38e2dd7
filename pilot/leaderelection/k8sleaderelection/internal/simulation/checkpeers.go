package simulation

import "slices"

// startWithPeers is called when p starts its run functions. It checks that no peer runs, as far as PeerGrace
// covers it and p could detect it.
func (c *checks) startWithPeers(p *process) {
	for _, n := range c.w.nodes {
		if n.q == nil {
			continue
		}
		for _, work := range n.q.works {
			if !c.excused(p, n.q, work) {
				c.w.violate(Peers, "%v starts while run functions of %v run", p, n.q)
			}
		}
	}
}

// excused reports whether p may start while run functions of a peer run, because p could not detect them or
// PeerGrace does not validity them.
func (c *checks) excused(p *process, q *peer, work *peerWork) bool {
	switch {
	case work.let, work.term.wiped, work.term.namesake, q.pausedAt > q.wroteAt:
		return true
	case p.acked != nil && p.acked.removedWith != nil:
		return true // the record of p was removed before its reply, and q found no lock
	case work.term.overwrote(p.acked):
		return true // q acquired the lock from p, which has not seen that yet
	case (work.term.letGo || work.term.leftTo == p.id) && !slices.Contains(p.seenTerms, work.term):
		return true
	}
	return p.unknowableTerm(work.term)
}

// overwrote reports whether only overwriting happened between old and t.
func (t *term) overwrote(old *term) bool {
	for ; t != nil; t = t.prev {
		if t == old {
			return true
		}
	}
	return false
}

// peerWrites is called before a write of a peer is applied. If it acquires a free or expired lock, no
// incumbent process may act.
func (c *checks) peerWrites(q *peer, now view, expired bool) {
	if !expired {
		return
	}
	for _, p := range c.w.procs {
		if p.mayAct() && p.acting != nil && !p.acting.disturbed {
			c.w.violate(Peers, "%v acquires %s while %v may act", q, shown(now.snap), p)
		}
	}
}
