package core

import "time"

// Record is the decoded record of the lock. Its stamps come from the writer and are never compared with a
// local clock.
type Record struct {
	Holder, Key       string
	Lease             time.Duration
	Acquired, Renewed Stamp
	Transitions       int
}

// isTerm reports whether the record belongs to this holder and term.
func (r Record) isTerm(holder string, transitions int) bool {
	return holder != "" && r.Holder == holder && r.Transitions == transitions
}

// Content is the content of an existing lock object.
type Content uint8

const (
	// Missing: no record.
	Missing Content = iota
	// Unreadable: a record that cannot be decoded.
	Unreadable
	// Readable: a record.
	Readable
)

// Marker is the annotation of an acting incumbent leader. The zero value is no marker.
type Marker struct {
	Identity    string
	Transitions int
	// Handover: this leader can judge and fulfill a request.
	Handover bool
	// Unfit: any fit candidate should replace this leader.
	Unfit bool
}

// matches reports whether the marker belongs to the holder and term of the record.
func (m Marker) matches(r Record) bool { return r.isTerm(m.Identity, m.Transitions) }

// Nomination is the annotation of a leader or coordinator that wrote the holder for this term. The zero value
// is no nomination.
type Nomination struct {
	Identity    string
	Transitions int
	// Uncounted: a coordinator wrote it, which does not increment transitions.
	Uncounted bool
}

// Annotations are the decoded annotations of incumbent on the lock object.
type Annotations struct {
	Marker    Marker
	Nominated Nomination
	Request   Request
	Hold      Hold
}

// Snapshot is the lock object in one reply or watch event.
type Snapshot struct {
	Exists      bool
	UID         string // empty if the object does not exist
	Version     uint64 // grows with each write; for a deletion, the version of the deletion
	Content     Content
	Sum         uint64 // hash of the bytes of the record
	Record      Record
	Annotations Annotations
	// Strategy: a coordinator selects the holder. Preferred is the candidate that it prefers to the holder.
	Strategy  bool
	Preferred string
}

// Held reports whether there is a readable record with a holder.
func (s Snapshot) Held() bool {
	return s.Exists && s.Content == Readable && s.Record.Holder != ""
}

// Acting reports whether the marker shows that the recorded holder is an incumbent process that acts. A
// coordinator that names a former leader keeps its marker, which then does not count.
func (s Snapshot) Acting() bool {
	return s.Held() && s.Annotations.Marker.matches(s.Record) && !s.ByCoordinator()
}

// Nominated reports whether another process wrote the recorded holder, which has not written itself yet and so
// does not act. An incumbent nominee removes the annotation with its first write. A peer keeps it, so renewals
// and transitions count too. A marker of the record proves that the holder has written. Only a coordinator names
// a former leader next to its marker.
func (s Snapshot) Nominated() bool {
	n := s.Annotations.Nominated
	return s.Held() && s.Record.isTerm(n.Identity, n.Transitions) && s.Record.Renewed == s.Record.Acquired &&
		(n.Uncounted || !s.Annotations.Marker.matches(s.Record))
}

// idle reports whether no holder has written the record.
func (s Snapshot) idle() bool { return !s.Held() || s.Nominated() }

// Named reports whether the nomination names the recorded holder, even if that has written since.
func (s Snapshot) Named() bool { return s.Annotations.Nominated.Identity == s.Record.Holder }

// nominationIn returns the nomination in next, which follows s. The annotation has no term, and peers never
// remove it. So an annotation that was seen when it did not count (another holder, no holder, or a renewal) still belongs to
// that term, unless a hold of an operator names the new one. A nomination is written together with its record, so an annotation that
// appears later is forged.
func (s Snapshot) nominationIn(next Snapshot) Nomination {
	was := s.Annotations.Nominated
	is := next.Annotations.Nominated
	appeared := s.Held() && s.UID == next.UID && s.Record == next.Record && was.Identity != is.Identity
	if appeared || next.Acting() {
		return Nomination{}
	}
	named := next.Annotations.Hold.Reason == HoldForTransfer && next.Annotations.Hold.Holder == is.Identity
	left := s.UID == next.UID && was.Identity == is.Identity && !s.Nominated()
	if left && !named && !is.Uncounted && was.Transitions <= is.Transitions {
		return was
	}
	return is
}

// Former returns the identity in a marker of another term than the record's. That leader was displaced by an
// elector without markers and may still act.
func (s Snapshot) Former() string {
	if !s.Exists || s.Acting() {
		return ""
	}
	return s.Annotations.Marker.Identity
}

// hasFormer reports whether there is such a marker of another candidate. The own marker does not count: a
// process ends its run functions before it campaigns again.
func (s Snapshot) hasFormer(self string) bool {
	return s.Former() != "" && s.Former() != self
}

// sameRecord reports whether the record was not written between a and b.
func sameRecord(a, b Snapshot) bool {
	return a.Exists == b.Exists && a.UID == b.UID && a.Content == b.Content && a.Sum == b.Sum
}

// sameHolder reports whether both have the same holder in the same lock. The transitions may differ, because
// one process never runs the run functions of two terms.
func sameHolder(a, b Snapshot) bool {
	return a.Held() && b.Held() && a.UID == b.UID && a.Record.Holder == b.Record.Holder
}

// endedWell reports whether b shows that the term in a ended after its run functions returned: by a drained
// release or a handover. A marker that the holder in a had found does not show how its own term ended.
func endedWell(a, b Snapshot) bool {
	if !b.Exists || a.UID != b.UID || b.Version < a.Version || b.Content != Readable {
		return false
	}
	if m := b.Annotations.Marker; m != (Marker{}) && (a.Acting() || m != a.Annotations.Marker) {
		return false
	}
	if b.Record.Holder == "" {
		return b.Record.Transitions == a.Record.Transitions
	}
	if b.ByCoordinator() {
		// Only the leader itself removes its marker, in its drained release.
		return a.Acting() && b.Annotations.Marker == (Marker{}) && b.Record.Transitions == a.Record.Transitions
	}
	return b.Nominated() && b.Record.Transitions == after(a.Record.Transitions)
}
