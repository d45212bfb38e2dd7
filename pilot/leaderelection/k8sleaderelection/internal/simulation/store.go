package simulation

import (
	"hash/maphash"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// term is a period of holding the lock, by a process or by a foreign edit.
type term struct {
	p           *process // nil: not an incumbent process
	q           *peer    // nil: not a peer
	id          string   // recorded holder
	token       uint64
	marked      bool           // written with its own marker: the process may act
	disturbed   bool           // another writer changed its record
	prev        *term          // term that it displaced without a drained release
	clean       bool           // it followed a drained release
	removedWith *term          // term at the time when the record was removed by an edit
	unreadAt    []core.Instant // by node: when the record became unreadable
	disguised   bool           // the rest looked like a drained release
	duplicated  bool           // another live process of that name acquired it
	letGo       bool           // a peer released the lock after overwriting it
	hidden      bool           // the same, and a user had removed its marker
	wiped       bool           // it was a term of another peer
	named       bool           // a coordinator named the holder, which has not written yet
	emptied     bool           // a user removed the holder, and a marker is left
	leftTo      string         // the same for a term before it: the candidate in the marker
	forged      bool           // a user wrote annotations next to it
	namesake    bool           // term of a peer with the marker of an incumbent process of its name
}

// view is the lock as a reply or watch event shows it, with the truth for checks.
type view struct {
	snap     core.Snapshot
	foreign  uint64 // metadata of others
	term     *term  // nil: none
	released bool   // after a drained release of an incumbent process
	by       *call  // writer of the record; nil: not an incumbent process
}

func (v view) newer(u view) bool {
	return v.snap.Version > u.snap.Version
}

// store is the API server with one object.
type store struct {
	w       *world
	now     view
	version uint64
	uids    int
	commits int
}

// next returns a version. Versions have gaps, as in a cluster.
func (s *store) next() uint64 {
	s.version += 1 + s.w.rng.Uint64N(300)
	return s.version
}

var seed = maphash.MakeSeed()

// sum is a hash of the record.
func sum(s core.Snapshot) uint64 {
	return maphash.Comparable(seed, core.Snapshot{Content: s.Content, Record: s.Record})
}

// commit makes v the present state with a new version and notifies the watchers.
func (s *store) commit(v view) view {
	s.commits++
	if n := v.snap.Annotations.Nominated; !n.Uncounted {
		v.snap.Annotations.Nominated = v.snap.Nomination(n.Identity)
	}
	v.snap.Version = s.next()
	if v.by == s.now.by && v.snap.Record != s.now.snap.Record {
		v.by = nil
	}
	s.now = v
	s.w.notify(&v)
	return v
}

// accepts reports whether a write that is guarded by a snapshot does not conflict.
func (s *store) accepts(base core.Snapshot) bool {
	now := s.now.snap
	return base.Version == unguardedVersion || base.Exists == now.Exists && (!base.Exists || base.Version == now.Version && base.UID == now.UID)
}

// write applies a request as an API server does.
func (s *store) write(c *call) (core.Result, view) {
	base, now := c.base, s.now
	unguarded := base.Version == unguardedVersion
	if !s.accepts(base) {
		return core.Conflict, view{}
	}
	s.w.checkGuard(c, now, unguarded)
	next := view{snap: core.Snapshot{
		Exists: true, UID: now.snap.UID, Content: record.Readable, Record: c.record, Annotations: c.annotations,
	}}
	next.foreign = now.foreign
	if next.snap.Strategy = now.snap.Strategy; now.snap.Preferred != c.record.Holder && !c.unprefer {
		next.snap.Preferred = now.snap.Preferred
	}
	if !now.snap.Exists {
		s.uids++
		next.snap.UID = uid(s.uids)
		next.foreign = 0
	}
	next.snap.Sum = sum(next.snap)
	if now.snap.Exists && next.snap.Sum == now.snap.Sum && next.snap.Annotations == now.snap.Annotations {
		return core.OK, now // a PUT that changes nothing
	}
	s.attribute(c, now, &next)
	if next.by = c; c.op == core.SendRequest {
		next.by = now.by
	}
	next = s.commit(next)
	if c.op == core.Acquire && next.term != now.term {
		next.term.token = next.snap.Version
		s.now = next
	}
	s.w.committed(c, now, next)
	s.w.ambush(c)
	return core.OK, next
}

// attribute determines the term of the written record.
func (s *store) attribute(c *call, now view, next *view) {
	if now.term != nil && now.term.p != c.p && c.op != core.SendRequest {
		now.term.disturbed = true
		now.term.duplicated = now.term.duplicated || now.term.id == c.p.id && now.term.p != nil && !now.term.p.ended
	}
	switch c.op {
	case core.Acquire:
		next.term = &term{p: c.p, id: c.p.id, clean: now.released}
		if !now.released {
			next.term.prev = now.term
		}
	case core.Renew:
		next.term = now.term
	case core.SendRequest: // the record is unchanged
		next.term, next.released = now.term, now.released
		return
	case core.Release, core.HandOver: // a nominee does not act
		next.released = true
	}
	if next.term != nil && names(c.annotations.Marker, c.record) {
		next.term.marked = true
	}
}

// foreignEdit is a change by a user. removes: nothing of the record is left.
func (s *store) foreignEdit(v view, removes bool) view {
	old := s.now.term
	if old != nil && (v.term != old || removes) {
		old.disturbed = true
	}
	if removes {
		for t := old; t != nil; t = t.prev {
			if t.removedWith == nil {
				t.removedWith = old
			}
			t.disguised = t.disguised || v.released
		}
	} else if v.term != nil && v.term != old {
		v.term.prev = old
	}
	if v.snap.Exists {
		v.snap.Sum = sum(v.snap)
	}
	return s.commit(v)
}

func uid(n int) string {
	return "uid-" + string(rune('a'+n%26)) + string(rune('a'+n/26%26))
}

// names reports whether the marker matches the record.
func names(m core.Marker, r core.Record) bool {
	return m.Identity != "" && m.Identity == r.Holder && m.Transitions == r.Transitions
}
