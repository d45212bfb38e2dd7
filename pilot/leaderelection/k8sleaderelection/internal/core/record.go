package core

import "time"

// Record is who holds the lock, decoded to plain values. Its stamps are the
// writer's and are never compared with a local clock.
type Record struct {
	Holder, Key       string
	Lease             time.Duration
	Acquired, Renewed Stamp
	Transitions       int
}

// isTerm reports whether the record is of the holder's term of that number. What is noted on the lock
// counts beside no other.
func (r Record) isTerm(holder string, transitions int) bool {
	return holder != "" && r.Holder == holder && r.Transitions == transitions
}

// Content says what kind of record an existing lock object carries.
type Content uint8

const (
	// Missing: the object carries no record at all.
	Missing Content = iota
	// Unreadable: it carries something that cannot be decoded or believed.
	Unreadable
	// Readable: it carries Record.
	Readable
)

// Marker is the annotation by which a leader of ours says that it acts. The zero
// Marker is none.
type Marker struct {
	Identity    string
	Transitions int
	// Handover: this leader can judge and fulfil a request.
	Handover bool
	// Unfit: this leader should be replaced by any candidate that is fit.
	Unfit bool
}

// names reports whether the marker is that of the record's holder and term.
func (m Marker) matches(r Record) bool { return r.isTerm(m.Identity, m.Transitions) }

// Nomination is the annotation by which a leader or a coordinator says that it has written the
// holder in, for that term. The zero Nomination is none.
type Nomination struct {
	Identity    string
	Transitions int
	// Uncounted: a coordinator's, which counts no term of its nominee's.
	Uncounted bool
}

// Notes are our annotations on the lock object, decoded.
type Annotations struct {
	Marker    Marker
	Nominated Nomination
	Request   Request
	Hold      Hold
	Needs     NeedsBoth // on an object of a Pair alone
	Successor bool      // of a write: it is a successor's, see Snapshot.Successor
}

// UID names the object that a lock is. Of a lock that is two it names both, and one that is
// not there has no name.
type UID struct{ First, Second string }

// Snapshot is the lock object as one answer or watch event showed it.
type Snapshot struct {
	Exists      bool
	UID         UID
	Version     uint64 // grows with each write; of a deletion seen by a watch, the deletion's
	Content     Content
	Sum         uint64 // of the record's bytes: equal sums, unchanged record
	Record      Record
	Annotations Annotations
	// Of a lock that is two objects, Halves says in which the record stands, in this
	// term, and Floor is the most transitions that either counts.
	Halves Halves
	Floor  int
	// Strategy: a coordinator chooses who holds this lock. Preferred is whom it wants in the
	// holder's place; empty: nobody.
	Strategy  bool
	Preferred string
	// Successor: the record was written by one that does not act by it: see predecessor.go.
	Successor bool
}

// Halves is in which of a lock's two objects a record stands. Zero: the lock is one.
type Halves uint8

const (
	InFirst Halves = 1 << iota
	InSecond
)

// half reports whether the record stands in one of two objects: nobody may act on that.
func (s Halves) isHalf() bool { return s == InFirst || s == InSecond }

// continues reports whether b's record can be what became of a's: the lock was not made
// anew, and the one object in which a stood is not one of which b says nothing.
func continues(a, b Snapshot) bool {
	return sameLock(a, b) && (a.Halves == b.Halves || a.Halves&b.Halves != 0)
}

// Held reports whether there is a record that can be read, and it names a holder.
func (s Snapshot) Held() bool {
	return s.Exists && s.Content == Readable && s.Record.Holder != ""
}

// Acting reports whether the marker says that the recorded holder is one of ours
// and has begun to act. A coordinator counts no term: one that names a process which led
// before leaves that one's marker beside the new name.
func (s Snapshot) Acting() bool {
	return s.Held() && s.Annotations.Marker.matches(s.Record) && !s.ByCoordinator()
}

// Nominated reports whether the recorded holder was written in by somebody else and
// has not written itself yet: it cannot be acting. One of ours takes the annotation away
// with its first own write. A peer that an operator had put there keeps it, even through
// later terms of its own; its renewals and its transitions tell.
func (s Snapshot) Nominated() bool {
	n := s.Annotations.Nominated
	return s.Held() && s.Record.isTerm(n.Identity, n.Transitions) && s.Record.Renewed == s.Record.Acquired
}

// Named reports whether a nomination's annotation names the recorded holder, also if that has written itself since.
func (s Snapshot) Named() bool { return s.Annotations.Nominated.Identity == s.Record.Holder }

// nominationIn is the nomination that next shows, which comes after s. The annotation names no term. A
// candidate of ours takes it away, but a peer leaves it where it is, and so do peers that come after it: one of
// the nominee's name, which takes the lock later by itself, was not written in by anybody. So an annotation that was
// seen beside another holder stays about that term, unless an operator's hold names one.
func (s Snapshot) nominationIn(next Snapshot) Nomination {
	was, is := s.Annotations.Nominated, next.Annotations.Nominated
	named := next.Annotations.Hold.Reason == HoldForTransfer && next.Annotations.Hold.Holder == is.Identity
	left := s.Held() && s.UID == next.UID && was.Identity == is.Identity &&
		(s.Record.Holder != was.Identity || s.Record.Transitions != was.Transitions)
	if left && !named && !is.Uncounted && was.Transitions <= is.Transitions {
		return was
	}
	return is
}

// Former is whose marker was left behind, beside a record of another term: one of ours was displaced by
// a candidate that knows no markers, and may still act. Empty: nobody's.
func (s Snapshot) Former() string {
	if !s.Exists || s.Acting() {
		return ""
	}
	return s.Annotations.Marker.Identity
}

// hasFormer reports whether there is such a marker of another than self. One of one's own is none: a
// process ends its functions before it takes part again, and a process that died has ended them too.
func (s Snapshot) hasFormer(self string) bool {
	return s.Former() != "" && s.Former() != self
}

// sameRecord reports whether nothing was written into the record between a and b.
func sameRecord(a, b Snapshot) bool {
	return a.Exists == b.Exists && a.UID == b.UID && a.Content == b.Content && a.Sum == b.Sum
}

// sameHolder reports whether the same holder stands in both, in one run of its own
// writes. A holder that takes its own lock again is another term, but the same
// danger: one process runs the functions of one term at a time.
func sameHolder(a, b Snapshot) bool {
	return a.Held() && b.Held() && sameLock(a, b) && a.Record.Holder == b.Record.Holder
}

// sameLock reports whether b is not made anew where a was. Of two objects, one that is not
// there does not count.
func sameLock(a, b Snapshot) bool {
	if a.Halves == 0 {
		return a.UID == b.UID
	}
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(a.UID.First, b.UID.First) && same(a.UID.Second, b.UID.Second)
}

// endedWell reports whether what b shows says that the term a shows ended with its
// functions returned: by a drained release, or by a handover. A marker that a's holder
// found there and left says nothing of a's own end. An older state that was put back
// shows no end of anything.
func endedWell(a, b Snapshot) bool {
	if !b.Exists || !continues(a, b) || b.Version < a.Version || b.Content != Readable {
		return false
	}
	if m := b.Annotations.Marker; m != (Marker{}) && (a.Acting() || m != a.Annotations.Marker) {
		return false
	}
	if b.Record.Holder == "" {
		return b.Record.Transitions == a.Record.Transitions
	}
	if b.ByCoordinator() {
		// Nobody but a leader of ours takes its marker away, and that by its drained release.
		return a.Acting() && b.Annotations.Marker == (Marker{}) && b.Record.Transitions == a.Record.Transitions
	}
	return b.Nominated() && b.Record.Transitions == after(a.Record.Transitions)
}
