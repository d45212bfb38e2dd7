package simulation

import (
	"slices"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// term is one unbroken time of holding the lock, as the store knows it: by one process or,
// without one, by a foreign edit.
type term struct {
	p           *process // nil: nobody of ours
	q           *peer    // nil: no peer
	id          string   // the recorded holder
	history     int
	token       uint64
	marked      bool           // it was written with its own marker: its process may act
	disturbed   bool           // somebody else changed its record
	prev        *term          // what it displaced, unless that ended by a drained release
	clean       bool           // it did
	removedWith *term          // the term that stood when a foreign hand removed the record
	unreadAt    []core.Instant // by node: when somebody made the record unreadable
	disguised   bool           // and what was left looked like its drained release
	duplicated  bool           // another live process of that name took it over
	letGo       bool           // a peer released the lock over it
	wiped       bool           // and it was another peer's that held it
	named       bool           // nobody's yet: a coordinator has named a holder over what was there
	namesake    bool           // a peer's, and the marker of one of ours that had its name stands beside it
}

// view is the lock as an answer or a watch event shows it, with the truth behind it,
// which only checks may look at.
type view struct {
	snap     core.Snapshot
	history  int
	foreign  uint64 // what others keep on the object
	term     *term  // whose record this is; nil: nobody's
	released bool   // a drained release of ours left it so
}

// newer reports whether v was written after u.
func (v view) newer(u view) bool {
	return v.history > u.history || v.history == u.history && v.snap.Version > u.snap.Version
}

// position is a version in a history.
type position struct {
	history int
	version uint64
}

// histories keeps versions of different histories from being equal.
const histories = 16

// store is the API server: one object, guarded by its version.
type store struct {
	w        *world
	now      view
	past     []view
	restores []position      // where histories were cut off
	undone   map[uint64]bool // records that restores have undone
	lost     []*term         // and whose terms those were
	version  uint64
	uids     int
	commits  int
}

// next gives out a version. Versions have gaps, since the cluster writes other things.
func (s *store) next() uint64 {
	step := 1 + s.w.rng.Uint64N(20)
	s.version = (s.version/histories+step)*histories + uint64(s.now.history%histories)
	return s.version
}

// sum stands for a hash of the record's bytes.
func sum(s core.Snapshot) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	mix := func(v uint64) { h = (h ^ v) * prime }
	text := func(t string) {
		for i := range len(t) {
			mix(uint64(t[i]))
		}
		mix(256)
	}
	r := s.Record
	mix(uint64(s.Content))
	text(r.Holder)
	text(r.Key)
	for _, v := range []uint64{uint64(r.Lease), uint64(r.Acquired), uint64(r.Renewed), uint64(r.Transitions)} {
		mix(v)
	}
	return h
}

// commit makes v the present state and tells the watchers. It gives it a version.
func (s *store) commit(v view) view {
	s.commits++
	if s.undone[v.snap.Sum] && v.snap.Exists && v.snap.Sum != s.now.snap.Sum {
		s.w.tracef("a record that was undone is written again, byte for byte: nobody can tell")
		s.w.end, s.w.aborted = s.w.now, true
	}
	v.snap.Annotations.Nominated = decoded(v.snap)
	v.snap.Version = s.next()
	v.history = s.now.history
	s.past = append(s.past, s.now)
	s.now = v
	s.w.notify(v)
	return v
}

// decoded is the nomination as our electors read it: the annotation is a name, and an
// operator's transfer tells for which term it was.
func decoded(s core.Snapshot) core.Nomination {
	n, h := s.Annotations.Nominated, s.Annotations.Hold
	switch {
	case n.Identity == "":
		return core.Nomination{}
	case h.Reason == core.HoldForTransfer && h.Holder == n.Identity:
		n.Transitions = h.Transitions
	default:
		n.Transitions = s.Record.Transitions
	}
	return n
}

// write is a request of ours that has arrived. It answers as an API server does.
func (s *store) write(c *call) (core.Result, view) {
	base, now := c.base, s.now
	unguarded := base.Version == unguardedVersion
	if !unguarded && (base.Exists != now.snap.Exists || base.Exists && (base.Version != now.snap.Version || base.UID != now.snap.UID)) {
		return core.Conflict, view{}
	}
	s.w.checkGuard(c, now, unguarded)
	next := view{snap: core.Snapshot{
		Exists: true, UID: now.snap.UID, Content: core.Readable, Record: c.record, Annotations: c.notes,
	}}
	next.foreign = now.foreign
	if next.snap.Strategy = now.snap.Strategy; now.snap.Preferred != c.record.Holder {
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
	next = s.commit(next)
	if c.op == core.Acquire && next.term != now.term {
		next.term.token = next.snap.Version
		s.now = next
	}
	s.w.committed(c, now, next)
	s.w.ambush(c)
	return core.OK, next
}

// attribute says whose record the write leaves behind.
func (s *store) attribute(c *call, now view, next *view) {
	if now.term != nil && now.term.p != c.p && c.op != core.SendRequest {
		now.term.disturbed = true
		now.term.duplicated = now.term.duplicated || now.term.id == c.p.id && now.term.p != nil && !now.term.p.ended
	}
	switch c.op {
	case core.Acquire:
		next.term = &term{p: c.p, id: c.p.id, history: now.history, clean: now.released}
		if !now.released {
			next.term.prev = now.term
		}
	case core.Renew:
		next.term = now.term
	case core.SendRequest: // the record is as it was
		next.term, next.released = now.term, now.released
		return
	case core.Release, core.HandOver: // a nominee does not act: it is as if nobody held the lock
		next.released = true
	}
	if next.term != nil && names(c.notes.Marker, c.record) {
		next.term.marked = true
	}
}

// foreignEdit is a change by somebody who is no candidate. removes says that it leaves
// nothing of the record.
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
		for _, t := range s.lost {
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

// restore puts an older state back: a new history begins at its version.
func (s *store) restore(back int) {
	if len(s.past) <= back {
		return
	}
	old := s.past[len(s.past)-1-back]
	if s.now.term != nil {
		s.now.term.disturbed = true
	}
	if old.term != nil {
		old.term.disturbed = true
	}
	present := s.now.term
	for t := present; t != nil && t != old.term; t = t.prev {
		if t.removedWith == nil {
			t.removedWith = present
		}
		s.lost = append(s.lost, t)
	}
	for _, v := range append(s.past[len(s.past)-back:], s.now) {
		s.undone[v.snap.Sum] = true
	}
	s.restores = append(s.restores, position{s.now.history, old.snap.Version})
	history := s.now.history + 1
	s.past = slices.Clip(s.past[:len(s.past)-1-back])
	s.version = old.snap.Version
	s.now = old
	s.now.history = history
}

// historyOf is the latest history that the term's first write is part of.
func (s *store) historyOf(t *term) int {
	for history := t.history; ; history++ {
		if history >= len(s.restores) || t.token > s.restores[history].version {
			return history
		}
	}
}

func uid(n int) core.UID {
	return core.UID{First: "uid-" + string(rune('a'+n%26)) + string(rune('a'+n/26%26))}
}

// names reports whether the marker is that of the record's holder and term.
func names(m core.Marker, r core.Record) bool {
	return m.Identity != "" && m.Identity == r.Holder && m.Transitions == r.Transitions
}
